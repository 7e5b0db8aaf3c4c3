//! The side record of a task, for fields that few tasks need: made on demand, freed with the task.
//!
//! A task's third word is the line that spawned it, as long as no more is needed. Otherwise it is
//! the address of a record, with the bit [`SIDE`]:
//!
//! | record | used by | holds | next |
//! |---|---|---|---|
//! | none | a light task without waiters | the line is in the word itself | own (color asked for, joined, granted, traced, waits for a color) |
//! | shared | consecutive tasks of one color and one spawning line | color, line | own (joined, granted, traced, waits for a color) |
//! | own | one task | color, if asked for; line; joiner; grants; the color that it waits for | gone with the task |
//!
//! The word changes by one compare-and-swap from none or shared to own, and never again. The new
//! record keeps the one that it replaced, so a thread that has read the word may use that record as
//! long as it has the task.

use std::panic::Location;
use std::ptr;
use std::sync::{Arc, Weak};

use crate::color::Color;
use crate::color::node::{Origin, SIDE};
use crate::hold::ticket::Ticket;
use crate::observe::dump::TaskWait;
use crate::runtime::foreign::KeptWaker;
use crate::sync::atomic::{AtomicPtr, Ordering::*};
use crate::sync::lock::Lock;

/// The data of a task beyond its header.
#[repr(align(8))]
pub(crate) struct Side {
    /// As in a node: the line that spawned the task, or its trace record.
    pub(crate) origin: AtomicPtr<()>,
    /// The color of a shared record.
    given: Option<Color>,
    /// For an own record: a boxed handle; null until the color is requested. Set once.
    color: AtomicPtr<Color>,
    /// The waiter for the end of the task.
    pub(super) joiner: Lock<Option<KeptWaker>>,
    /// Grants that were handed to the task; see `ticket.rs`.
    pub(crate) granted: AtomicPtr<Ticket>,
    /// The shared record that this one replaced, which has the color.
    base: Option<Arc<Side>>,
    /// The line that asked for the color that the task waits for, and that color's number, or
    /// [`SEVERAL`]; null if it waits for none. Used only by dumps, so models do not check them.
    waits_at: std::sync::atomic::AtomicPtr<Location<'static>>,
    waits_for: std::sync::atomic::AtomicU64,
}

/// The shared record of a color that was used last. Keeps nothing alive.
pub(crate) struct LastSide(Lock<Weak<Side>>);

impl Side {
    fn new(origin: *mut (), given: Option<Color>, base: Option<Arc<Side>>) -> Side {
        Side {
            origin: AtomicPtr::new(origin),
            given,
            color: AtomicPtr::new(ptr::null_mut()),
            joiner: Lock::new(None),
            granted: AtomicPtr::new(ptr::null_mut()),
            base,
            waits_at: Default::default(),
            waits_for: Default::default(),
        }
    }

    /// The record of a task's third word, if it has one.
    #[inline]
    pub(crate) fn of(word: &AtomicPtr<()>) -> Option<&Side> {
        // Acquire pairs with the exchange in `own`.
        let record = record(word.load(Acquire));
        // SAFETY: a record lives as long as the task that has this word.
        unsafe { record.as_ref() }
    }

    /// The task's own record; made if there is none.
    pub(crate) fn own(word: &AtomicPtr<()>) -> &Side {
        // Acquire: as in `of`.
        let mut old = word.load(Acquire);
        loop {
            let base = record(old);
            // SAFETY: as in `of`.
            let shared = unsafe { base.as_ref() };
            if let Some(side) = shared.filter(|side| !side.is_shared()) {
                return side;
            }
            // Relaxed: the line of a shared record never changes.
            let origin = shared.map_or(old, |base| base.origin.load(Relaxed));
            // SAFETY: the word has a count; this adds another one.
            let base = shared.map(|_| unsafe {
                Arc::increment_strong_count(base);
                Arc::from_raw(base)
            });
            let made = Arc::into_raw(Arc::new(Side::new(origin, None, base)));
            // AcqRel: releases the record to `of`.
            let now = word.compare_exchange(old, with_bit(made), AcqRel, Acquire).err();
            // SAFETY: the new record belongs to the word and is freed only with the task, and the
            // word's count on the old one is ours; or the exchange failed, and the new record is
            // ours.
            unsafe {
                match now {
                    None => {
                        Side::release(old);
                        return &*made;
                    }
                    Some(now) => {
                        drop(Arc::from_raw(made));
                        old = now;
                    }
                }
            }
        }
    }

    /// A record for one more task of `color`, spawned at `origin`: the last record, if it fits.
    /// Returns the task's third word, which has a count.
    pub(crate) fn share(color: &Color, origin: Origin) -> *mut () {
        let origin = light_word(origin);
        let cell = color.alive();
        let mut last = cell.ext.get_or_make().last_side.0.lock();
        let side = match last.upgrade() {
            // Relaxed: it never changes, and the lock orders reads of the record.
            Some(side) if side.origin.load(Relaxed) == origin => side,
            other => {
                let side = Arc::new(Side::new(origin, Some(color.clone()), None));
                let before = (std::mem::replace(&mut *last, Arc::downgrade(&side)), other);
                drop(last);
                // Perhaps the last count.
                drop(before);
                side
            }
        };
        with_bit(Arc::into_raw(side))
    }

    fn is_shared(&self) -> bool {
        self.given.is_some()
    }

    /// The color, if it was requested.
    #[inline]
    pub(crate) fn color(&self) -> Option<&Color> {
        let holder = self.base.as_deref().unwrap_or(self);
        // SAFETY: set once, and freed with the record. Acquire pairs with `set_color`.
        holder.given.as_ref().or_else(|| unsafe { holder.color.load(Acquire).as_ref() })
    }

    /// Gives the task its color; returns it if another thread was first.
    pub(super) fn set_color(&self, color: Color) -> Result<&Color, Color> {
        let color = Box::into_raw(Box::new(color));
        // AcqRel: releases the handle, and earlier changes of the color, to `color`.
        let set = self.color.compare_exchange(ptr::null_mut(), color, AcqRel, Acquire);
        // SAFETY: as in `color`; or ours, because the exchange failed.
        unsafe { if set.is_ok() { Ok(&*color) } else { Err(*Box::from_raw(color)) } }
    }

    /// Notes that the task waits for a color, or for several, and the line that asked.
    pub(crate) fn note_wait(&self, color_id: Option<u64>, asked_at: Origin) {
        // Relaxed, here and below: for dumps. It points to a constant of the program.
        self.waits_for.store(color_id.unwrap_or(SEVERAL), Relaxed);
        self.waits_at.store(ptr::from_ref(asked_at).cast_mut(), Relaxed);
    }

    /// Notes that that wait is over.
    pub(crate) fn end_wait(&self, asked_at: Origin) {
        if ptr::eq(self.waits_at.load(Relaxed), asked_at) {
            self.waits_at.store(ptr::null_mut(), Relaxed);
        }
    }

    /// The task's wait, if it is for a color.
    pub(crate) fn wait(&self) -> Option<TaskWait> {
        // SAFETY: `note_wait` stored it; it takes only references that live as long as the program.
        let asked_at = unsafe { self.waits_at.load(Relaxed).as_ref() }?;
        Some(match self.waits_for.load(Relaxed) {
            SEVERAL => TaskWait::Colors { asked_at },
            color_id => TaskWait::Color { color_id, asked_at },
        })
    }

    /// Gives up a task's third word.
    ///
    /// # Safety
    /// The word has a count, which the caller gives up.
    pub(crate) unsafe fn release(word: *mut ()) {
        let record = record(word);
        if !record.is_null() {
            // SAFETY: promised by the caller; from an `Arc`, in `own` or `share`.
            drop(unsafe { Arc::from_raw(record) });
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Some(color) = &self.given {
            let cell = color.alive();
            let mut last = cell.ext.get_or_make().last_side.0.lock();
            let is_this = ptr::eq(last.as_ptr(), self);
            let before = is_this.then(|| std::mem::take(&mut *last));
            drop(last);
            drop(before);
        }
        // Relaxed: `&mut self` comes after everything else.
        let color = self.color.load(Relaxed);
        if !color.is_null() {
            // SAFETY: from a box, in `set_color`.
            drop(unsafe { Box::from_raw(color) });
        }
    }
}

impl LastSide {
    pub(crate) fn new() -> LastSide {
        LastSide(Lock::new(Weak::new()))
    }
}

/// The task waits for more than one color.
const SEVERAL: u64 = u64::MAX;

fn with_bit(side: *const Side) -> *mut () {
    side.map_addr(|addr| addr | SIDE).cast_mut().cast()
}

/// The record of a task's third word, or null.
fn record(word: *mut ()) -> *const Side {
    if word.addr() & SIDE == 0 { ptr::null() } else { word.map_addr(|addr| addr & !SIDE).cast() }
}

/// The third word of a light task when it starts.
pub(super) fn light_word(origin: Origin) -> *mut () {
    ptr::from_ref(origin).cast_mut().cast()
}
