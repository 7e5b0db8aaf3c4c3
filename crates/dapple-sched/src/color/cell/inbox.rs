//! A color's inbox: how nodes come from other threads.
//!
//! A stack of nodes with one bit, `NOTIFIED`. Whoever pushes and finds the bit unset has set it, and links the color
//! into its home's remote list; only the worker that takes the color off that list clears it. So a color is linked in
//! at most one remote list, and a color whose bit is set is not freed. A second bit, `OUTSIDE`, goes with the nodes: one
//! of them came from no worker's callback, and the color is to go by the express list (`run_queue`).
//!
//! | inbox | meaning | next |
//! |---|---|---|
//! | null | nothing came from outside | push: node + bit, and link |
//! | node + bit | linked (or being linked) | push: node + bit; early drain: bit alone; taken off the list: null |
//! | bit alone | linked; its nodes were already moved to the fifo | push: node + bit; taken off the list: null |
//! | any of these, with `FROZEN` | a request for several colors is being accepted | by whoever holds the home lock: the request's node + bit, or as before without `FROZEN` |
//!
//! `FROZEN` is set and cleared within one section under the home lock. Whoever meets it without that lock, in order to push
//! or to drain, waits for the lock (`request/place.rs`).
//!
//! An early drain keeps order (C2): whoever appends to the fifo first moves what is in the inbox there, so that a node
//! whose push happened before stands before.

use std::ptr;

use super::ColorCell;
use crate::color::node::{Node, NodeList, OwnedNode};
use crate::sync::atomic::Ordering::*;

impl ColorCell {
    /// Pushes a node from another thread; `outside`: of no worker's callback. True: the caller has set NOTIFIED and must
    /// link the color.
    pub(in crate::color) fn push_inbox(&self, node: OwnedNode, outside: bool) -> bool {
        self.check_alive();
        // Relaxed, and counted before it is there: a number to show, which may be ahead for a moment.
        self.note_len(self.inbox_len.fetch_add(1, Relaxed) + 1);
        let bits = NOTIFIED | if outside { OUTSIDE } else { 0 };
        let mut old = self.inbox.load(Relaxed);
        loop {
            if is_frozen(old) {
                old = self.await_thaw();
                continue;
            }
            node.next.set(without_bits(old));
            let new = node.as_ptr().map_addr(|addr| addr | bits | (old.addr() & OUTSIDE));
            // Success releases the node to `drain_inbox` and `take_notified`; it acquires, from the latter, that
            // `remote_next` has been read and may be written again.
            match self.inbox.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => return old.addr() & NOTIFIED == 0,
                Err(now) => old = now,
            }
        }
    }

    /// Whether there is more in the inbox than can be ignored: nodes, or `FROZEN`, which who has the home lock never sees.
    #[inline]
    pub(crate) fn inbox_waits(&self) -> bool {
        // Relaxed: a push that happened before is seen by coherence; `drain_inbox` acquires.
        self.inbox.load(Relaxed).addr() & !(NOTIFIED | OUTSIDE) != 0
    }

    /// Whether a request is being accepted by whoever holds the home lock.
    pub(crate) fn inbox_is_frozen(&self) -> bool {
        // Relaxed: the bit changes under the home lock only.
        is_frozen(self.inbox.load(Relaxed))
    }

    /// Whether nodes wait in the inbox, be it frozen or not.
    pub(crate) fn inbox_has_nodes(&self) -> bool {
        // Relaxed: as in `inbox_waits`.
        !without_bits(self.inbox.load(Relaxed)).is_null()
    }

    /// Waits until the request that is being accepted is; returns what the inbox holds then. The caller has no lock.
    #[cold]
    fn await_thaw(&self) -> *mut Node {
        drop(self.shared().lock_home(self));
        // Relaxed: as where it was looked at first.
        self.inbox.load(Relaxed)
    }

    /// Keeps everybody from posting to this color, and its turn from draining the inbox, until [`ColorCell::thaw`] or
    /// [`ColorCell::thaw_with`]. `drains`: moves what came from outside to the end of the fifo before.
    ///
    /// # Safety
    /// The caller holds the home lock until then; if it drains, as [`ColorCell::fifo`].
    pub(crate) unsafe fn freeze(&self, drains: bool) {
        self.check_alive();
        let kept = if drains { NOTIFIED } else { !0 };
        let mut old = self.inbox.load(Relaxed);
        loop {
            let frozen = old.map_addr(|addr| addr & kept | FROZEN);
            // Acquires what was posted before; releases to who finds the bit, and posts after this or waits, that the
            // colors which were frozen before are.
            match self.inbox.compare_exchange_weak(old, frozen, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        if drains {
            // SAFETY: promised by the caller; the exchange made the nodes ours.
            unsafe { self.append_stack(old) };
        }
    }

    /// Ends what [`ColorCell::freeze`] began.
    ///
    /// # Safety
    /// The caller has frozen the inbox, and still holds the home lock.
    pub(crate) unsafe fn thaw(&self) {
        // Relaxed: no other thread changes it while it is frozen.
        let word = self.inbox.load(Relaxed).map_addr(|addr| addr & !FROZEN);
        // AcqRel: releases that the request has been accepted to all who post from here on.
        self.inbox.swap(word, AcqRel);
    }

    /// As [`ColorCell::thaw`], and leaves a node in the inbox, as [`ColorCell::push_inbox`] does.
    ///
    /// # Safety
    /// As [`ColorCell::thaw`].
    pub(crate) unsafe fn thaw_with(&self, node: OwnedNode, outside: bool) -> bool {
        self.note_len(self.inbox_len.fetch_add(1, Relaxed) + 1);
        // Relaxed: nobody else changes it while it is frozen.
        let old = self.inbox.load(Relaxed);
        node.next.set(without_bits(old));
        let bits = NOTIFIED | if outside { OUTSIDE } else { old.addr() & OUTSIDE };
        // AcqRel: as in `thaw`, and in `push_inbox`.
        self.inbox.swap(node.as_ptr().map_addr(|addr| addr | bits), AcqRel);
        old.addr() & NOTIFIED == 0
    }

    /// Takes the nodes of waits that were dropped out of the inbox; returns them as a list. The color need not be one whose
    /// fifo the caller owns.
    ///
    /// # Safety
    /// The caller holds the home lock.
    pub(crate) unsafe fn unlink_dropped_from_inbox(&self) -> NodeList {
        if !self.inbox_has_nodes() {
            return NodeList::new();
        }
        // SAFETY: promised by the caller; until it is thawed, the inbox and its nodes are ours.
        unsafe { self.freeze(false) };
        // Relaxed: no other thread changes it while it is frozen.
        let word = self.inbox.load(Relaxed);
        // SAFETY: as above.
        let mut stack = unsafe { NodeList::from_raw(without_bits(word)) };
        let (removed, count) = stack.unlink_dropped();
        // Relaxed: a number to show.
        self.inbox_len.fetch_sub(count, Relaxed);
        // AcqRel: as in `thaw`. Releases the links of what stays, and acquires nothing that `freeze` has not.
        let kept = if stack.is_empty() { NOTIFIED } else { NOTIFIED | OUTSIDE };
        self.inbox.swap(stack.into_raw().map_addr(|addr| addr | word.addr() & kept), AcqRel);
        removed
    }

    /// Neither nodes nor the bit: nobody will come for this color.
    #[inline]
    pub(crate) fn inbox_vacant(&self) -> bool {
        // Acquire pairs with `take_notified` on another worker (a rescue), whose accesses end before we free.
        self.inbox.load(Acquire).is_null()
    }

    /// Moves what came from outside to the end of the fifo; the color stays linked.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    #[inline]
    pub(crate) unsafe fn drain_inbox(&self) {
        if self.inbox_waits() {
            // SAFETY: promised by the caller.
            unsafe { self.drain_waiting() };
        }
    }

    /// # Safety
    /// As [`ColorCell::drain_inbox`]; nodes are waiting.
    #[cold]
    unsafe fn drain_waiting(&self) {
        let mut top = self.inbox.load(Relaxed);
        loop {
            if is_frozen(top) {
                top = self.await_thaw();
            } else if without_bits(top).is_null() {
                return;
            } else {
                // Acquire pairs with the release in `push_inbox`. Nodes in the inbox imply that NOTIFIED is set, so the
                // bit is kept.
                match self.inbox.compare_exchange_weak(top, ptr::without_provenance_mut(NOTIFIED), AcqRel, Relaxed) {
                    Ok(_) => break,
                    Err(now) => top = now,
                }
            }
        }
        // SAFETY: promised by the caller; the exchange made the nodes ours.
        unsafe { self.append_stack(top) };
    }

    /// Clears NOTIFIED and moves what came from outside to the end of the fifo.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`], and the caller has taken the color off its remote list (and read its link).
    pub(crate) unsafe fn take_notified(&self) {
        // AcqRel: acquires the nodes, releases our read of `remote_next` to the next `push_inbox`.
        let top = self.inbox.swap(ptr::null_mut(), AcqRel);
        // SAFETY: promised by the caller; the swap made the nodes ours.
        unsafe { self.append_stack(top) };
    }

    /// Appends what an inbox held.
    ///
    /// # Safety
    /// The caller owns the nodes on `top` and the fifo.
    unsafe fn append_stack(&self, top: *mut Node) {
        // SAFETY: promised by the caller.
        unsafe { self.append(NodeList::from_raw(without_bits(top)), top.addr() & OUTSIDE != 0) };
    }
}

#[inline]
fn without_bits(node: *mut Node) -> *mut Node {
    node.map_addr(|addr| addr & !(NOTIFIED | OUTSIDE | FROZEN))
}

#[inline]
fn is_frozen(inbox: *mut Node) -> bool {
    inbox.addr() & FROZEN != 0
}

/// Bits in the inbox; nodes are 16-aligned.
const NOTIFIED: usize = 1;
const OUTSIDE: usize = 2;
const FROZEN: usize = 4;
