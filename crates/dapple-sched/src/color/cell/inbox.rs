//! A color's inbox: nodes from other threads.
//!
//! A stack of nodes with one bit, `NOTIFIED`. A thread that pushes sets the bit; the one that
//! changes it from 0 to 1 links the color into its home's remote list. Only the worker that takes
//! the color off that list clears the bit. So a color is in at most one remote list, and a color
//! with the bit set is not freed. A second bit, `OUTSIDE`, says that one of the nodes was not
//! posted by a worker's callback, so that the color goes to the express list (`run_queue`).
//!
//! | inbox | meaning | next |
//! |---|---|---|
//! | null | the inbox is empty | push: node + bit, and link |
//! | node + bit | linked (or being linked) | push: node + bit; early drain: bit alone; taken off the list: null |
//! | bit alone | linked; its nodes were already moved to the fifo | push: node + bit; taken off the list: null |
//! | any of these, with `FROZEN` | a request for several colors is being accepted | by the holder of the home lock: the request's node + bit, or as before without `FROZEN` |
//!
//! `FROZEN` is set and cleared within one section under the home lock. A thread without that lock
//! that meets the bit, in order to push or to drain, waits for the lock (`request/place.rs`).
//!
//! An early drain keeps order (C2): before a thread appends to the fifo it moves the inbox there,
//! so that a node pushed earlier stays in front.

use std::ops::DerefMut;
use std::ptr;

use super::fifo::FifoGuard;
use super::{ColorCell, State};
use crate::color::node::{Node, NodeList, OwnedNode};
use crate::color::rights::{HomeGuard, Notified};
use crate::sync::atomic::Ordering::*;
use crate::worker::Worker;
use crate::worker::run_queue::RunQueue;

impl ColorCell {
    /// Pushes a node from another thread; `outside`: from no worker's callback. True if the caller
    /// has set NOTIFIED and must link the color.
    pub(in crate::color) fn push_inbox(&self, node: OwnedNode, outside: bool) -> bool {
        self.check_alive();
        // Relaxed, and counted before the push: only for statistics, in which the count may be too
        // high for a moment.
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
            // Success releases the node to `drain_inbox` and `take_notified`. It acquires, from the
            // latter, the read of `remote_next`, which may now be written again.
            match self.inbox.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => return old.addr() & NOTIFIED == 0,
                Err(now) => old = now,
            }
        }
    }

    /// Whether the inbox has nodes or is `FROZEN`. The holder of the home lock never sees it
    /// `FROZEN`.
    #[inline]
    pub(crate) fn inbox_waits(&self) -> bool {
        // Relaxed: coherence shows every push that happened before; `drain_inbox` acquires.
        self.inbox.load(Relaxed).addr() & !(NOTIFIED | OUTSIDE) != 0
    }

    /// Whether the holder of the home lock is accepting a request.
    pub(crate) fn inbox_is_frozen(&self) -> bool {
        // Relaxed: the bit changes under the home lock only.
        is_frozen(self.inbox.load(Relaxed))
    }

    /// Whether nodes wait in the inbox, frozen or not.
    pub(crate) fn inbox_has_nodes(&self) -> bool {
        // Relaxed: as in `inbox_waits`.
        !without_bits(self.inbox.load(Relaxed)).is_null()
    }

    /// Waits until the request has been accepted; returns the content of the inbox after that. The
    /// caller holds no lock.
    #[cold]
    fn await_thaw(&self) -> *mut Node {
        drop(self.shared().lock_home(self));
        // The inbox has neither nodes nor the bit, so no worker will come for this color.
        self.inbox.load(Relaxed)
    }

    /// Neither nodes nor the bit: no worker will come for this color.
    #[inline]
    pub(crate) fn inbox_vacant(&self) -> bool {
        // Acquire pairs with `take_notified` on another worker (a rescue): its accesses end
        // before we free.
        self.inbox.load(Acquire).is_null()
    }

    /// Sets the bit that keeps other threads from changing the inbox. Called under the home lock.
    fn freeze_as_it_is(&self) {
        let mut old = self.inbox.load(Relaxed);
        loop {
            let frozen = old.map_addr(|addr| addr | FROZEN);
            // Acquires earlier posts. Releases to a thread that finds the bit, and then posts or
            // waits: the colors frozen before this one are frozen.
            match self.inbox.compare_exchange_weak(old, frozen, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Takes the nodes out, and says whether one of them came from outside. Waits while a request
    /// is being accepted.
    #[cold]
    fn take_waiting(&self) -> Option<(NodeList, bool)> {
        let mut top = self.inbox.load(Relaxed);
        loop {
            if is_frozen(top) {
                top = self.await_thaw();
            } else if without_bits(top).is_null() {
                return None;
            } else {
                // Nodes in the inbox imply that NOTIFIED is set, so the bit is kept.
                match self.take(top, NOTIFIED) {
                    Ok(taken) => return Some(taken),
                    Err(now) => top = now,
                }
            }
        }
    }

    /// Takes the nodes out of the inbox if it still equals `old`, and leaves `bits` in it. Returns
    /// the nodes, and whether one of them came from outside.
    fn take(&self, old: *mut Node, bits: usize) -> Result<(NodeList, bool), *mut Node> {
        // Acquire pairs with the release in `push_inbox`. Release: as in `freeze`.
        self.inbox.compare_exchange_weak(old, ptr::without_provenance_mut(bits), AcqRel, Relaxed)?;
        // SAFETY: the nodes of the word belong to the thread that takes it out.
        Ok((unsafe { NodeList::from_raw(without_bits(old)) }, old.addr() & OUTSIDE != 0))
    }
}

impl FifoGuard<'_> {
    /// Moves the nodes of the inbox to the end of the fifo; the color stays linked.
    #[inline]
    pub(crate) fn drain_inbox(&mut self) {
        if self.inbox_waits()
            && let Some((stack, outside)) = self.color().take_waiting()
        {
            self.append(stack, outside);
        }
    }
}

impl<Q: DerefMut<Target = RunQueue>> HomeGuard<'_, Q> {
    /// Clears NOTIFIED, and moves the nodes of the inbox to the end of the fifo. The color does not
    /// run.
    pub(crate) fn take_notified(&mut self, notified: Notified) {
        let color = self.color();
        assert!(notified.is_of(color) && self.state() != State::Running, "its home lock owns the fifo");
        // AcqRel: acquires the nodes, releases our read of `remote_next` to the next `push_inbox`.
        let old = color.get().inbox.swap(ptr::null_mut(), AcqRel);
        // SAFETY: the swap made this thread the owner of the nodes.
        let stack = unsafe { NodeList::from_raw(without_bits(old)) };
        if let Some(mut fifo) = self.fifo() {
            fifo.append(stack, old.addr() & OUTSIDE != 0);
        }
    }

    /// Keeps all threads from posting to this color, and its turn from draining the inbox, until
    /// [`HomeGuard::thaw`] or [`HomeGuard::thaw_with`]; the lock stays held until then. `drains`:
    /// first moves the inbox to the fifo, unless the color runs on a worker other than `worker`.
    pub(crate) fn freeze(&mut self, drains: bool, worker: Option<&Worker>) {
        let cell = self.color();
        let fifo = match worker {
            Some(worker) => self.fifo_of(worker),
            None => self.fifo(),
        };
        cell.check_alive();
        let mut old = cell.get().inbox.load(Relaxed);
        let Some(mut fifo) = fifo.filter(|_| drains) else { return cell.freeze_as_it_is() };
        loop {
            // As in `freeze_as_it_is`.
            match cell.take(old, old.addr() & NOTIFIED | FROZEN) {
                Ok((stack, outside)) => return fifo.append(stack, outside),
                Err(now) => old = now,
            }
        }
    }

    /// Ends what [`HomeGuard::freeze`] began.
    pub(crate) fn thaw(&mut self) {
        assert!(self.color().inbox_is_frozen(), "it is thawed once");
        let inbox = &self.color().get().inbox;
        // Relaxed: no other thread changes it while it is frozen.
        let word = inbox.load(Relaxed).map_addr(|addr| addr & !FROZEN);
        // AcqRel: releases, to all later posters, that the request has been accepted.
        inbox.swap(word, AcqRel);
    }

    /// As [`HomeGuard::thaw`], and pushes a node to the inbox, as a post from another thread does.
    pub(crate) fn thaw_with(&mut self, node: OwnedNode, outside: bool) -> Option<Notified> {
        assert!(self.color().inbox_is_frozen(), "it is thawed once");
        let cell = self.color().get();
        cell.note_len(cell.inbox_len.fetch_add(1, Relaxed) + 1);
        // Relaxed: only this thread changes it while it is frozen.
        let old = cell.inbox.load(Relaxed);
        node.next.set(without_bits(old));
        let bits = NOTIFIED | if outside { OUTSIDE } else { old.addr() & OUTSIDE };
        // AcqRel: as in `thaw`, and in `push_inbox`.
        cell.inbox.swap(node.as_ptr().map_addr(|addr| addr | bits), AcqRel);
        self.notified(old.addr() & NOTIFIED == 0)
    }

    /// Takes the nodes of dropped waits out of the inbox, even while another thread owns the fifo.
    pub(crate) fn unlink_dropped_from_inbox(&mut self) -> NodeList {
        let cell = self.color().get();
        if !cell.inbox_has_nodes() {
            return NodeList::new();
        }
        cell.freeze_as_it_is();
        // Relaxed: no other thread changes it while it is frozen.
        let word = cell.inbox.load(Relaxed);
        // SAFETY: the inbox is frozen until this function thaws it; until then it belongs to the
        // home lock.
        let mut stack = unsafe { NodeList::from_raw(without_bits(word)) };
        let (removed, count) = stack.unlink_dropped();
        // Relaxed: for statistics.
        cell.inbox_len.fetch_sub(count, Relaxed);
        // AcqRel: as in `thaw`. Releases the links of the nodes that stay; it has nothing to
        // acquire after `freeze`.
        let kept = if stack.is_empty() { NOTIFIED } else { NOTIFIED | OUTSIDE };
        cell.inbox.swap(stack.into_raw().map_addr(|addr| addr | word.addr() & kept), AcqRel);
        removed
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
