//! The part of a task that few tasks need: made when it is first asked for, freed with the task.
//!
//! A task's third word is where it was spawned, as long as that is all there is to say. Otherwise it is the address of a
//! record, with the bit [`SIDE`]:
//!
//! | record | who has it | holds | next |
//! |---|---|---|---|
//! | none | a light task that nobody waits for | the line is in the word itself | own (color asked for, joined, granted, traced, waits for a color) |
//! | shared | the tasks of one color that one line spawned after one another | color, line | own (joined, granted, traced, waits for a color) |
//! | own | one task | color, if it was asked for; line; joiner; grants; what color it waits for | gone with the task |
//!
//! The word changes by one compare-and-swap from none or shared to own, and never again. A record that was replaced is
//! kept by the one that replaced it, so that whoever has read the word may go on using what he read as long as he has the
//! task.

use std::panic::Location;
use std::ptr;

use crate::color::Color;
use crate::color::node::{Origin, SIDE};
use crate::hold::ticket::Ticket;
use crate::observe::dump::TaskWait;
use crate::runtime::foreign::KeptWaker;
use crate::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use crate::sync::lock::Lock;
use crate::sync::refs;

/// What a task has beyond its header.
#[repr(align(8))]
pub(crate) struct Side {
    /// As a node's: where the task was spawned, or what traces it.
    pub(crate) origin: AtomicPtr<()>,
    /// A boxed handle; null until the color is asked for. Set once.
    color: AtomicPtr<Color>,
    /// Who waits for the end of the task.
    pub(super) joiner: Lock<Option<KeptWaker>>,
    /// Grants that were handed to the task; see `ticket.rs`.
    pub(crate) granted: AtomicPtr<Ticket>,
    /// The shared record that this one replaced, which has the color; or null. Counted.
    base: *const Side,
    /// The line that asked for the color that the task waits for, and that color's number, or [`SEVERAL`]; null where it waits
    /// for none. Only to be shown, so that models do not look at them.
    waits_at: std::sync::atomic::AtomicPtr<Location<'static>>,
    waits_for: std::sync::atomic::AtomicU64,
    /// Of a shared record: tasks, and records of their own that replaced it. 0 for one's own.
    refs: AtomicU32,
}

// SAFETY: atomics and locks, a handle that is `Send` and `Sync`, and a record that is counted.
unsafe impl Send for Side {}
// SAFETY: as above.
unsafe impl Sync for Side {}

/// The shared record of a color that was used last. It keeps nothing alive.
pub(crate) struct LastSide(Lock<*const Side>);

// SAFETY: the pointer is followed under the lock only, and whoever frees the record takes it out first.
unsafe impl Send for LastSide {}
// SAFETY: as above.
unsafe impl Sync for LastSide {}

impl Side {
    fn new(origin: *mut (), base: *const Side, refs: u32) -> Side {
        Side {
            origin: AtomicPtr::new(origin),
            color: AtomicPtr::new(ptr::null_mut()),
            joiner: Lock::new(None),
            granted: AtomicPtr::new(ptr::null_mut()),
            base,
            waits_at: Default::default(),
            waits_for: Default::default(),
            refs: AtomicU32::new(refs),
        }
    }

    /// The record of a task's third word, if it has one.
    #[inline]
    pub(crate) fn of(word: &AtomicPtr<()>) -> Option<&Side> {
        // Acquire pairs with the exchange in `own`.
        let word = word.load(Acquire);
        // SAFETY: with the bit it is a record, which lives as long as the task whose word this is.
        (word.addr() & SIDE != 0).then(|| unsafe { &*without_bit(word) })
    }

    /// The record that is this task's own, made where there is none.
    pub(crate) fn own(word: &AtomicPtr<()>) -> &Side {
        // Acquire: as in `of`.
        let mut old = word.load(Acquire);
        loop {
            let base = if old.addr() & SIDE == 0 { ptr::null() } else { without_bit(old) };
            // SAFETY: as in `of`.
            let shared = unsafe { base.as_ref() };
            if let Some(side) = shared.filter(|side| !side.is_shared()) {
                return side;
            }
            // Relaxed: the line of a shared record never changes.
            let origin = shared.map_or(old, |base| base.origin.load(Relaxed));
            let made = Box::into_raw(Box::new(Side::new(origin, base, 0)));
            // AcqRel: releases the record to `of`; the count that the word had on the base goes over to the new record.
            match word.compare_exchange(old, with_bit(made), AcqRel, Acquire) {
                // SAFETY: just made, and freed with the task only.
                Ok(_) => return unsafe { &*made },
                Err(now) => {
                    // SAFETY: ours, as the exchange failed; its base is still the word's.
                    drop(unsafe { Box::from_raw(made) });
                    old = now;
                }
            }
        }
    }

    /// A record for one task more of `color` that was spawned at `origin`: that of the last one, if it fits. Returns the
    /// task's third word, which has a count.
    pub(crate) fn share(color: Color, origin: Origin) -> *mut () {
        let origin = ptr::from_ref(origin).cast_mut().cast::<()>();
        // SAFETY: the handle keeps the cell alive.
        let last = &unsafe { color.cell().as_ref() }.ext.get_or_make().last_side;
        let mut last = last.0.lock();
        // SAFETY: whoever frees the record takes it out under this lock first.
        if let Some(side) = unsafe { last.as_ref() }
            && side.origin.load(Relaxed) == origin
            && side.retain_if_used()
        {
            // The pointer itself, through which the record is freed.
            return with_bit(last.cast_mut());
        }
        let side = Side::new(origin, ptr::null(), 1);
        // Relaxed, here and above: not published before.
        side.color.store(Box::into_raw(Box::new(color)), Relaxed);
        let side = Box::into_raw(Box::new(side));
        *last = side;
        with_bit(side)
    }

    fn is_shared(&self) -> bool {
        // Relaxed: from 0 and to 0 for as long as the caller has a task of it.
        self.refs.load(Relaxed) > 0
    }

    fn retain_if_used(&self) -> bool {
        // Relaxed: the lock of `last_side` orders what is read of the record.
        refs::add_if_any(&self.refs, Relaxed)
    }

    /// The color, if it was asked for.
    #[inline]
    pub(crate) fn color(&self) -> Option<&Color> {
        // SAFETY: a base is counted by the record that has it.
        let holder = unsafe { self.base.as_ref() }.unwrap_or(self);
        // SAFETY: set once, and freed with the record. Acquire pairs with `set_color`.
        unsafe { holder.color.load(Acquire).as_ref() }
    }

    /// Gives the task its color; gives it back where somebody was first.
    pub(super) fn set_color(&self, color: Color) -> Result<&Color, Color> {
        let color = Box::into_raw(Box::new(color));
        // AcqRel: releases the handle, and what was done to the color before, to `color`.
        match self.color.compare_exchange(ptr::null_mut(), color, AcqRel, Acquire) {
            // SAFETY: as in `color`.
            Ok(_) => Ok(unsafe { &*color }),
            // SAFETY: ours, as the exchange failed.
            Err(_) => Err(*unsafe { Box::from_raw(color) }),
        }
    }

    /// The task waits for a color, or for several: asked for at that line.
    pub(crate) fn note_wait(&self, color_id: Option<u64>, asked_at: Origin) {
        // Relaxed, here and below: to be shown. What it points to is a constant of the program.
        self.waits_for.store(color_id.unwrap_or(SEVERAL), Relaxed);
        self.waits_at.store(ptr::from_ref(asked_at).cast_mut(), Relaxed);
    }

    /// That wait is over.
    pub(crate) fn end_wait(&self, asked_at: Origin) {
        if ptr::eq(self.waits_at.load(Relaxed), asked_at) {
            self.waits_at.store(ptr::null_mut(), Relaxed);
        }
    }

    /// What the task waits for, if that is a color.
    pub(crate) fn wait(&self) -> Option<TaskWait> {
        // SAFETY: `note_wait` stored it, which takes nothing shorter-lived than the program.
        let asked_at = unsafe { self.waits_at.load(Relaxed).as_ref() }?;
        Some(match self.waits_for.load(Relaxed) {
            SEVERAL => TaskWait::Colors { asked_at },
            color_id => TaskWait::Color { color_id, asked_at },
        })
    }

    /// Gives up a task's third word.
    ///
    /// # Safety
    /// The task is gone, and its word not used again.
    pub(crate) unsafe fn release(word: *mut ()) {
        if word.addr() & SIDE == 0 {
            return;
        }
        let side = without_bit(word);
        // SAFETY: promised by the caller; what is freed is one's own, or was used by nobody else.
        unsafe {
            if (*side).is_shared() {
                Side::release_shared(side);
                return;
            }
            let own = Box::from_raw(side.cast_mut());
            if !own.base.is_null() {
                Side::release_shared(own.base);
            }
        }
    }

    /// # Safety
    /// The caller has a count, which he gives up.
    unsafe fn release_shared(side: *const Side) {
        // SAFETY: counted; after the last count nobody but `share` may look at it, under the lock.
        unsafe {
            // AcqRel: as in `Arc`.
            if (*side).refs.fetch_sub(1, AcqRel) != 1 {
                return;
            }
            // Relaxed: set before it was shared.
            let color = &*(*side).color.load(Relaxed);
            let mut last = color.cell().as_ref().ext.get_or_make().last_side.0.lock();
            if *last == side {
                *last = ptr::null();
            }
            drop(last);
            drop(Box::from_raw(side.cast_mut()));
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // Relaxed: `&mut self` is ordered after all else.
        let color = self.color.load(Relaxed);
        if !color.is_null() {
            // SAFETY: from a box, in `set_color` or `share`.
            drop(unsafe { Box::from_raw(color) });
        }
    }
}

impl LastSide {
    pub(crate) fn new() -> LastSide {
        LastSide(Lock::new(ptr::null()))
    }
}

/// The task waits for more than one color.
const SEVERAL: u64 = u64::MAX;

fn with_bit(side: *mut Side) -> *mut () {
    side.map_addr(|addr| addr | SIDE).cast()
}

fn without_bit(word: *mut ()) -> *const Side {
    word.map_addr(|addr| addr & !SIDE).cast()
}

/// What a light task's third word is when it starts.
pub(super) fn light_word(origin: Origin) -> *mut () {
    ptr::from_ref(origin).cast_mut().cast()
}
