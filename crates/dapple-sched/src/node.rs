//! A queued callback: an intrusive list node followed by whatever it runs.
//!
//! A `Node` is owned by exactly one place at a time: the poster until it is pushed, then one inbox or fifo, then the
//! running turn, which consumes it through its [`VTable`]. Sixteen bytes of header; closures of up to 48 bytes
//! live in 64-byte blocks from the worker's free list (`block.rs`).

use std::cell::Cell;
use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;

use crate::Priority;
use crate::block;

/// The header of every queued callback.
#[repr(C)]
pub(crate) struct Node {
    /// The next one in the same list; written only by the owner of the list.
    pub(crate) next: Cell<*mut Node>,
    /// Address of the [`VTable`]; its low bits carry the priority and whether the node counts against a capacity.
    tagged: Cell<*const VTable>,
}

/// What a node does. Both functions consume the node.
#[repr(align(16))]
pub(crate) struct VTable {
    /// Runs the callback. May unwind; the node is consumed all the same.
    pub(crate) run: unsafe fn(NonNull<Node>),
    /// Drops the callback without running it. May unwind.
    pub(crate) drop: unsafe fn(NonNull<Node>),
}

const PRIORITY_MASK: usize = 0b0111;
const COUNTED: usize = 0b1000;

impl Node {
    pub(crate) fn new(vtable: &'static VTable, priority: Priority) -> Node {
        let vtable: *const VTable = vtable;
        Node {
            next: Cell::new(std::ptr::null_mut()),
            tagged: Cell::new(vtable.map_addr(|addr| addr | usize::from(priority.level()))),
        }
    }

    #[inline]
    pub(crate) fn vtable(&self) -> &'static VTable {
        let vtable = self.tagged.get().map_addr(|addr| addr & !(PRIORITY_MASK | COUNTED));
        // SAFETY: `new` stored a `&'static VTable`, which is 16-aligned, so that masking four bits restores it.
        unsafe { &*vtable }
    }

    #[inline]
    pub(crate) fn priority(&self) -> u8 {
        (self.tagged.get().addr() & PRIORITY_MASK) as u8
    }

    /// Whether the node was counted against its color's capacity.
    #[inline]
    pub(crate) fn counted(&self) -> bool {
        self.tagged.get().addr() & COUNTED != 0
    }

    pub(crate) fn set_counted(&self) {
        self.tagged.set(self.tagged.get().map_addr(|addr| addr | COUNTED));
    }
}

/// A node whose closure lives inside it.
#[repr(C)]
struct ClosureNode<F> {
    node: Node,
    closure: ManuallyDrop<F>,
}

impl<F: FnOnce() + Send + 'static> ClosureNode<F> {
    const VTABLE: &'static VTable = &VTable { run: Self::run, drop: Self::drop };

    /// Moves the closure out and frees its block before it is called, so that the block is warm for what the
    /// closure itself posts, and a panic leaks nothing.
    ///
    /// # Safety
    /// The node was made by [`closure_node`] for this `F`, and is the caller's to give up.
    #[inline]
    unsafe fn take(node: NonNull<Node>) -> F {
        let mut this = node.cast::<ClosureNode<F>>();
        // SAFETY: `closure_node` made this node for this `F`; the caller owns it, and gives it up here.
        let closure = unsafe { ManuallyDrop::take(&mut this.as_mut().closure) };
        // SAFETY: same allocation and type as in `closure_node`; the contents have been moved out.
        unsafe { block::free(this) };
        closure
    }

    /// # Safety
    /// As [`ClosureNode::take`].
    unsafe fn run(node: NonNull<Node>) {
        // SAFETY: the caller passes on its ownership of the node.
        let closure = unsafe { Self::take(node) };
        closure();
    }

    /// # Safety
    /// As [`ClosureNode::take`].
    unsafe fn drop(node: NonNull<Node>) {
        // SAFETY: the caller passes on its ownership of the node.
        drop(unsafe { Self::take(node) });
    }
}

/// Puts a closure into a node. Costs one block: from the worker's free list, or from the allocator.
#[inline]
pub(crate) fn closure_node<F: FnOnce() + Send + 'static>(priority: Priority, closure: F) -> NonNull<Node> {
    let contents =
        ClosureNode { node: Node::new(ClosureNode::<F>::VTABLE, priority), closure: ManuallyDrop::new(closure) };
    block::alloc(contents).cast()
}

/// A list of nodes in order, with its length.
pub(crate) struct Chain {
    pub(crate) head: *mut Node,
    pub(crate) tail: *mut Node,
    pub(crate) len: u32,
    pub(crate) priority: u8,
}

impl Chain {
    /// Turns a last-in-first-out list into the order of its pushes.
    ///
    /// # Safety
    /// The caller must own every node that hangs on `top`.
    pub(crate) unsafe fn from_stack(top: *mut Node) -> Chain {
        let mut chain = Chain { head: std::ptr::null_mut(), tail: top, len: 0, priority: 0 };
        let mut rest = top;
        while let Some(node) = NonNull::new(rest) {
            // SAFETY: owned by the caller.
            let node_ref = unsafe { node.as_ref() };
            rest = node_ref.next.replace(chain.head);
            chain.head = node.as_ptr();
            chain.len += 1;
            chain.priority = chain.priority.max(node_ref.priority());
        }
        chain
    }
}

const _: () = assert!(mem::size_of::<Node>() == 16);
