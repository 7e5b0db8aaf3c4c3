//! A queued callback: an intrusive list node, followed by its closure.
//!
//! Exactly one place owns a `Node` at a time: the poster until the push, then one inbox or fifo,
//! then the running turn, which consumes the node through its [`VTable`]. The header has 24 bytes;
//! closures of up to 40 bytes live in 64-byte blocks from the worker's free list (`block.rs`).

use std::cell::Cell;
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::panic::Location;
use std::ptr::{self, NonNull};

use crate::Priority;
use crate::color::holder::Holder;
use crate::memory::block;
use crate::observe::trace::Record;
use crate::sync::atomic::{AtomicPtr, Ordering::*};
use crate::task::Side;
use crate::worker::Worker;

/// The header of every queued callback.
#[repr(C)]
pub(crate) struct Node {
    /// The next one in the same list; written only by the owner of the list.
    pub(crate) next: Cell<*mut Node>,
    /// Address of the [`VTable`]; its low bits hold the priority, whether the node asks to hold the
    /// color for reading, and whether it goes before all others.
    tagged: Cell<*const VTable>,
    /// Address of the [`Location`] that posted the callback; or, with [`TRACED`], of its
    /// [`Record`]. Another low bit, [`COUNTED`], says that the node counts against a capacity. With
    /// [`SIDE`] the node is a task's, and this is the address of a record, which has such a word,
    /// too. Any thread may make that record, so the word is atomic. In all other cases only the
    /// node's owner touches it.
    origin: AtomicPtr<()>,
}

/// The line of the program that posted a callback or spawned a task.
pub(crate) type Origin = &'static Location<'static>;

/// The functions of a node. Each consumes the node.
#[repr(align(32))]
pub(crate) struct VTable {
    /// Runs the callback, on this worker. May unwind; the node is consumed all the same.
    pub(crate) run: unsafe fn(NonNull<Node>, &Worker),
    /// Drops the callback without running it. May unwind.
    pub(crate) drop: unsafe fn(NonNull<Node>),
    /// For nodes that wait for the color instead of running in it.
    pub(crate) waits: Option<&'static Waits>,
}

/// The functions of a node that waits for its color.
pub(crate) struct Waits {
    /// `run` has asked for the turn to end, and now the color is held for the node (`Held`, or
    /// `Reading` if the node reads). Consumes the node. The thread that ended the turn calls this,
    /// with no lock held.
    pub(crate) grant: unsafe fn(NonNull<Node>),
    /// The holder of the color once it is held for the node.
    pub(crate) holder: unsafe fn(NonNull<Node>) -> Holder,
    /// For a color with a stopped worker: whether the node is still granted the color, or dropped
    /// instead.
    pub(crate) granted_when_stopped: bool,
    /// Whether the wait was dropped for good, so that the node may be removed.
    pub(crate) is_dropped: unsafe fn(NonNull<Node>) -> bool,
    /// Consumes the node of a dropped wait. Called with no lock held.
    pub(crate) remove: unsafe fn(NonNull<Node>),
}

const PRIORITY_MASK: usize = 0b0_0111;
const READS: usize = 0b0_1000;
const URGENT: usize = 0b1_0000;
const TAGS: usize = PRIORITY_MASK | READS | URGENT;

// Bits of the origin; locations and records are 8-aligned.
const TRACED: usize = 1;
const COUNTED: usize = 2;

/// The bit of a task's third word that goes with a record; see `task::side`.
pub(crate) const SIDE: usize = 4;

impl Node {
    #[inline]
    pub(crate) fn new(vtable: &'static VTable, priority: Priority, origin: Origin) -> Node {
        let vtable: *const VTable = vtable;
        Node {
            next: Cell::new(std::ptr::null_mut()),
            tagged: Cell::new(vtable.map_addr(|addr| addr | usize::from(priority.level()))),
            origin: AtomicPtr::new(ptr::from_ref(origin).cast_mut().cast()),
        }
    }

    /// The node of a task; `word` is its third word.
    #[inline]
    pub(crate) fn of_task(vtable: *const VTable, word: *mut ()) -> Node {
        Node {
            next: Cell::new(ptr::null_mut()),
            tagged: Cell::new(vtable.map_addr(|addr| addr | usize::from(Priority::NORMAL.level()))),
            origin: AtomicPtr::new(word),
        }
    }

    /// A task's third word.
    #[inline]
    pub(crate) fn task_word(&self) -> &AtomicPtr<()> {
        &self.origin
    }

    /// The word with the place that posted the callback: the node's, or that of a task's record.
    fn origin_word(&self) -> &AtomicPtr<()> {
        Side::of(&self.origin).map_or(&self.origin, |side| &side.origin)
    }

    /// The place that posted the callback; `None` if running it takes more than a call.
    #[inline]
    pub(crate) fn plain_origin(&self) -> Option<Origin> {
        // Relaxed, here and below: see the field. `Side::of` acquires.
        let word = self.origin.load(Relaxed);
        // SAFETY: without its low bits the word is what `new` or `take_record` stored, a `&'static
        // Location`.
        (word.addr() & (TRACED | COUNTED | SIDE) == 0).then(|| unsafe { &*word.cast() })
    }

    /// The place that posted the callback, or the record that knows it.
    pub(crate) fn origin(&self) -> Result<Origin, NonNull<Record>> {
        let word = self.origin_word().load(Relaxed);
        let address = word.map_addr(|addr| addr & !(TRACED | COUNTED));
        if word.addr() & TRACED == 0 {
            // SAFETY: as above.
            Ok(unsafe { &*address.cast() })
        } else {
            // SAFETY: a box or a block is not null.
            Err(unsafe { NonNull::new_unchecked(address.cast()) })
        }
    }

    /// The place that posted the callback, traced or not.
    pub(crate) fn posted_from(&self) -> Origin {
        // SAFETY: the record is the node's.
        self.origin().unwrap_or_else(|record| unsafe { record.as_ref() }.origin())
    }

    /// Begins or ends the tracing of the callback.
    #[inline]
    pub(crate) fn set_origin(&self, origin: Result<Origin, NonNull<Record>>) {
        let new = match origin {
            Ok(origin) => ptr::from_ref(origin).cast_mut().cast::<()>(),
            Err(record) => record.as_ptr().cast::<()>().map_addr(|addr| addr | TRACED),
        };
        let shared = self.origin.load(Relaxed).addr() & SIDE != 0;
        let word = if shared { &Side::own(&self.origin).origin } else { &self.origin };
        let counted = word.load(Relaxed).addr() & COUNTED;
        word.store(new.map_addr(|addr| addr | counted), Relaxed);
    }

    /// The address that a task's node was made with.
    #[inline]
    pub(crate) fn task_vtable(&self) -> *const VTable {
        self.tagged.get().map_addr(|addr| addr & !TAGS)
    }

    #[inline]
    pub(crate) fn vtable(&self) -> &'static VTable {
        let vtable = self.tagged.get().map_addr(|addr| addr & !TAGS);
        // SAFETY: `new` stored a `&'static VTable`, which is 32-aligned, so that masking five bits
        // restores it.
        unsafe { &*vtable }
    }

    #[inline]
    pub(crate) fn priority(&self) -> u8 {
        (self.tagged.get().addr() & PRIORITY_MASK) as u8
    }

    /// Whether the node was counted against its color's capacity.
    #[inline]
    pub(crate) fn counted(&self) -> bool {
        self.origin_word().load(Relaxed).addr() & COUNTED != 0
    }

    /// Whether the node asks to hold its color for reading.
    #[inline]
    pub(crate) fn reads(&self) -> bool {
        self.tagged.get().addr() & READS != 0
    }

    #[inline]
    pub(crate) fn set_reads(&self) {
        self.tagged.set(self.tagged.get().map_addr(|addr| addr | READS));
    }

    /// Whether the node goes before all others of its color, because others wait for a hold that it
    /// will release.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        self.tagged.get().addr() & URGENT != 0
    }

    /// Gives a node that is in no list another purpose: it now goes before all others of its color.
    pub(crate) fn become_urgent(&self, vtable: &'static VTable) {
        let vtable: *const VTable = vtable;
        let kept = self.tagged.get().addr() & PRIORITY_MASK;
        self.tagged.set(vtable.map_addr(|addr| addr | kept | URGENT));
    }

    pub(crate) fn set_counted(&self) {
        // Tasks are not counted, so this is the node's own word.
        self.origin.store(self.origin.load(Relaxed).map_addr(|addr| addr | COUNTED), Relaxed);
    }
}

/// A node with its closure inside.
#[repr(C)]
struct ClosureNode<F> {
    node: Node,
    closure: ManuallyDrop<F>,
}

impl<F: FnOnce() + Send + 'static> ClosureNode<F> {
    const VTABLE: &'static VTable = &VTable { run: Self::run, drop: Self::drop, waits: None };

    /// Moves the closure out and frees its block before the call, so that a post by the closure
    /// reuses the block, and a panic leaks nothing. A color that posts to itself thus keeps its
    /// blocks. If a block was freed after the call, that saved ten instructions, but blocks moved
    /// from color to color. After a theft, the blocks of two workers were adjacent, and W1 with 64
    /// in flight took twice the time on two workers.
    ///
    /// # Safety
    /// The node was made by [`closure_node`] for this `F`, and the caller gives it up.
    #[inline]
    unsafe fn take(node: NonNull<Node>) -> F {
        let mut this = node.cast::<ClosureNode<F>>();
        // SAFETY: `closure_node` made this node for this `F`; the caller owns it, and gives it up
        // here.
        let closure = unsafe { ManuallyDrop::take(&mut this.as_mut().closure) };
        // SAFETY: same allocation and type as in `closure_node`; the contents have been moved out.
        unsafe { block::free(this) };
        closure
    }

    /// # Safety
    /// As [`ClosureNode::take`].
    unsafe fn run(node: NonNull<Node>, worker: &Worker) {
        let mut this = node.cast::<ClosureNode<F>>();
        // SAFETY: as in `take`. The worker's thread is this one.
        let closure = unsafe {
            let closure = ManuallyDrop::take(&mut this.as_mut().closure);
            block::free_at(worker, this);
            closure
        };
        closure();
    }

    /// # Safety
    /// As [`ClosureNode::take`].
    unsafe fn drop(node: NonNull<Node>) {
        // SAFETY: the caller passes on its ownership of the node.
        drop(unsafe { Self::take(node) });
    }
}

/// Puts a closure into a node. Costs one block, from the worker's free list or from the allocator.
#[inline]
pub(super) fn closure_node<F>(priority: Priority, origin: Origin, closure: F) -> OwnedNode
where
    F: FnOnce() + Send + 'static,
{
    let block = block::alloc_uninit::<ClosureNode<F>>();
    // SAFETY: fresh.
    unsafe { fill(block, priority, origin, closure) }
}

/// As [`closure_node`], if that needs no call; otherwise returns the closure.
#[inline]
pub(super) fn try_closure_node<F>(priority: Priority, origin: Origin, closure: F) -> Result<OwnedNode, F>
where
    F: FnOnce() + Send + 'static,
{
    match block::try_alloc_uninit::<ClosureNode<F>>() {
        // SAFETY: fresh.
        Some(block) => Ok(unsafe { fill(block, priority, origin, closure) }),
        None => Err(closure),
    }
}

/// # Safety
/// The caller owns the block and gives it up.
#[inline]
unsafe fn fill<F>(
    block: NonNull<MaybeUninit<ClosureNode<F>>>,
    priority: Priority,
    origin: Origin,
    closure: F,
) -> OwnedNode
where
    F: FnOnce() + Send + 'static,
{
    let block = block.cast::<ClosureNode<F>>();
    // Field by field: if a closure is built elsewhere and then copied, the processor reads it back
    // before its parts have left the store buffer, which costs 5 ns. SAFETY: memory for a
    // `ClosureNode<F>`, owned by us.
    unsafe {
        (&raw mut (*block.as_ptr()).closure).write(ManuallyDrop::new(closure));
        (&raw mut (*block.as_ptr()).node).write(Node::new(ClosureNode::<F>::VTABLE, priority, origin));
    }
    OwnedNode(block.cast())
}

/// A node, and the right to use it: to give it to a color, to run it, or to drop it.
///
/// A value that goes out of scope leaks the node and its contents.
#[must_use]
pub(crate) struct OwnedNode(NonNull<Node>);

impl OwnedNode {
    /// # Safety
    /// The caller owns the node and gives it up; the node is in no list.
    #[inline]
    pub(crate) unsafe fn from_raw(node: NonNull<Node>) -> OwnedNode {
        OwnedNode(node)
    }

    /// Gives up the node without consuming it.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<Node> {
        self.0
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *mut Node {
        self.0.as_ptr()
    }

    /// Runs the callback, on this worker. May unwind.
    ///
    /// # Safety
    /// The node comes from the fifo of a color that this worker runs.
    #[inline]
    pub(crate) unsafe fn run(self, worker: &Worker) {
        // SAFETY: the node is of its table's kind, and the caller promises the rest.
        unsafe { (self.vtable().run)(self.0, worker) };
    }

    /// Drops the callback without running it. May unwind.
    ///
    /// # Safety
    /// The node comes from the fifo of a color that this thread holds, or no color has accepted it.
    pub(crate) unsafe fn discard(self) {
        // SAFETY: as in `run`.
        unsafe { (self.vtable().drop)(self.0) };
    }

    /// Tells a waiting node that its color is held for it.
    ///
    /// # Safety
    /// The color is held for the node, and the caller gives up the hold. No lock is held.
    pub(crate) unsafe fn grant(self) {
        if let Some(waits) = self.vtable().waits {
            // SAFETY: as in `run`.
            unsafe { (waits.grant)(self.0) };
        }
    }

    /// The holder of the color once it is held for the node.
    pub(crate) fn holder(&self) -> Holder {
        // SAFETY: as in `run`.
        self.vtable().waits.map_or(Holder::Task, |waits| unsafe { (waits.holder)(self.0) })
    }

    /// Whether the node is of a wait that was dropped for good.
    fn is_dropped(&self) -> bool {
        // SAFETY: as in `run`; the value owns its node.
        self.vtable().waits.is_some_and(|waits| unsafe { (waits.is_dropped)(self.0) })
    }

    /// Consumes the node of a dropped wait. No lock is held. May unwind.
    pub(crate) fn remove(self) {
        if let Some(waits) = self.vtable().waits
            && self.is_dropped()
        {
            // SAFETY: as in `run`, and the caller has asked `is_dropped`.
            unsafe { (waits.remove)(self.0) };
        }
    }
}

impl Deref for OwnedNode {
    type Target = Node;

    #[inline]
    fn deref(&self) -> &Node {
        // SAFETY: the node lives until its owner consumes it.
        unsafe { self.0.as_ref() }
    }
}

/// Nodes in a list, the last one first.
pub(crate) struct NodeList(*mut Node);

impl NodeList {
    #[inline]
    pub(crate) const fn new() -> NodeList {
        NodeList(ptr::null_mut())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn push(&mut self, node: OwnedNode) {
        node.next.set(self.0);
        self.0 = node.into_raw().as_ptr();
    }

    pub(crate) fn pop(&mut self) -> Option<OwnedNode> {
        let node = OwnedNode(NonNull::new(self.0)?);
        self.0 = node.next.replace(ptr::null_mut());
        Some(node)
    }

    /// # Safety
    /// The caller owns the nodes from `top` on and gives them up.
    pub(super) unsafe fn from_raw(top: *mut Node) -> NodeList {
        NodeList(top)
    }

    /// Gives up the nodes without consuming them.
    pub(super) fn into_raw(self) -> *mut Node {
        self.0
    }

    /// Takes out the nodes of dropped waits, and returns their number. The others keep their order.
    pub(super) fn unlink_dropped(&mut self) -> (NodeList, u32) {
        let mut queue = NodeQueue::new();
        while let Some(node) = self.pop() {
            queue.push(node);
        }
        let dropped = queue.unlink_dropped();
        self.0 = queue.head;
        dropped
    }
}

/// A queue of nodes, which it owns.
pub(super) struct NodeQueue {
    head: *mut Node,
    tail: *mut Node,
}

impl NodeQueue {
    #[inline]
    pub(super) const fn new() -> NodeQueue {
        NodeQueue { head: ptr::null_mut(), tail: ptr::null_mut() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// The oldest node.
    #[inline]
    pub(super) fn first(&self) -> Option<&Node> {
        // SAFETY: the queue owns its nodes.
        unsafe { self.head.as_ref() }
    }

    /// Prefetches the oldest node.
    #[inline]
    pub(super) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 has the instruction, which takes any address.
        unsafe {
            std::arch::x86_64::_mm_prefetch(self.head.cast_const().cast(), std::arch::x86_64::_MM_HINT_T0);
        }
    }

    #[inline]
    pub(super) fn push(&mut self, node: OwnedNode) {
        node.next.set(ptr::null_mut());
        let node = node.into_raw().as_ptr();
        self.append(NodeQueue { head: node, tail: node });
    }

    /// Appends a queue that is not empty.
    #[inline]
    pub(super) fn append(&mut self, other: NodeQueue) {
        // SAFETY: the queue owns its nodes.
        match unsafe { self.tail.as_ref() } {
            Some(tail) => tail.next.set(other.head),
            None => self.head = other.head,
        }
        self.tail = other.tail;
    }

    /// Puts a node before all others.
    pub(super) fn push_front(&mut self, node: OwnedNode) {
        node.next.set(self.head);
        let node = node.into_raw().as_ptr();
        if self.tail.is_null() {
            self.tail = node;
        }
        self.head = node;
    }

    /// Takes the oldest node, which keeps its link.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<OwnedNode> {
        let node = OwnedNode(NonNull::new(self.head)?);
        self.head = node.next.get();
        if self.head.is_null() {
            self.tail = ptr::null_mut();
        }
        Some(node)
    }

    /// Takes out the nodes of dropped waits, and returns their number.
    pub(super) fn unlink_dropped(&mut self) -> (NodeList, u32) {
        let mut all = mem::replace(self, NodeQueue::new());
        let (mut removed, mut count) = (NodeList::new(), 0);
        while let Some(node) = all.pop() {
            if node.is_dropped() {
                removed.push(node);
                count += 1;
            } else {
                self.push(node);
            }
        }
        (removed, count)
    }

    /// Moves urgent nodes to the front, where they keep their order.
    #[cold]
    pub(super) fn sort_urgent(&mut self) {
        let (mut all, mut others) = (mem::replace(self, NodeQueue::new()), NodeQueue::new());
        while let Some(node) = all.pop() {
            if node.is_urgent() { self.push(node) } else { others.push(node) }
        }
        if !others.is_empty() {
            self.append(others);
        }
    }
}

/// Waiters that each have a color held for them. [`crate::post::grant_all`] tells them, with no
/// lock held.
#[must_use]
pub(crate) struct Granted(NodeList);

impl Granted {
    #[inline]
    pub(crate) const fn none() -> Granted {
        Granted(NodeList::new())
    }

    /// # Safety
    /// The color of the node, which waits, is held for it.
    pub(super) unsafe fn push(&mut self, node: OwnedNode) {
        self.0.push(node);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends others.
    pub(crate) fn append(&mut self, mut others: Granted) {
        while let Some(node) = others.0.pop() {
            self.0.push(node);
        }
    }

    /// Tells the waiters that their colors are held for them, and calls `reached` before each. No
    /// lock is held.
    pub(crate) fn tell(mut self, reached: impl Fn(&OwnedNode)) {
        while let Some(node) = self.0.pop() {
            reached(&node);
            // SAFETY: promised to `push`.
            unsafe { node.grant() };
        }
    }
}

/// Nodes in order, and the facts about them that a fifo needs.
pub(super) struct Chain {
    pub(super) nodes: NodeQueue,
    pub(super) len: u32,
    pub(super) priority: u8,
    /// One of them is urgent.
    pub(super) urgent: bool,
}

impl Chain {
    /// Turns a last-in-first-out list into the order of its pushes.
    pub(super) fn from_stack(mut stack: NodeList) -> Chain {
        let mut chain = Chain { nodes: NodeQueue::new(), len: 0, priority: 0, urgent: false };
        while let Some(node) = stack.pop() {
            chain.len += 1;
            chain.priority = chain.priority.max(node.priority());
            chain.urgent |= node.is_urgent();
            chain.nodes.push_front(node);
        }
        chain
    }
}

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
const _: () = assert!(std::mem::size_of::<Node>() == 24);
