//! Values that must not leave a worker's thread: state and futures that are not `Send`.
//!
//! Each worker keeps its own, in its private half. A handle has a key; a look-up on another thread
//! finds nothing. So this needs no unsafe code, and no other thread ever touches or drops a value.
//! When the worker stops it drops the rest: tasks first, then state, each in the order of their
//! making.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use crate::color::Color;
use crate::hold;
use crate::runtime::context;
use crate::runtime::panics;
use crate::runtime::shared::Shared;
use crate::sync::yield_now;

/// The state and the futures of one worker's pinned colors.
#[derive(Default)]
pub(crate) struct Locals {
    futures: RefCell<BTreeMap<u64, Item>>,
    values: RefCell<BTreeMap<u64, Item>>,
}

struct Item {
    color: Color,
    /// `None` while a closure uses it.
    content: Option<Box<dyn Any>>,
}

/// The result of a look-up.
pub(crate) enum Found {
    /// Taken out; the caller returns it with [`Locals::give_back`].
    Free(Box<dyn Any>),
    InUse,
    Absent,
}

/// Whether a value can be taken.
pub(crate) enum Presence {
    Free,
    InUse,
    Absent,
}

impl Locals {
    pub(crate) fn add_value(&self, key: u64, color: Color, value: Box<dyn Any>) {
        self.values.borrow_mut().insert(key, Item { color, content: Some(value) });
    }

    pub(crate) fn find(&self, key: u64) -> Presence {
        match self.values.borrow().get(&key) {
            None => Presence::Absent,
            Some(item) if item.content.is_none() => Presence::InUse,
            Some(_) => Presence::Free,
        }
    }

    /// Takes a value out during its use.
    pub(crate) fn take_value(&self, key: u64) -> Found {
        match self.values.borrow_mut().get_mut(&key) {
            None => Found::Absent,
            Some(item) => item.content.take().map_or(Found::InUse, Found::Free),
        }
    }

    /// Ends a use. Drops a value that was removed meanwhile.
    pub(crate) fn give_back(&self, key: u64, value: Box<dyn Any>) {
        if let Some(item) = self.values.borrow_mut().get_mut(&key) {
            item.content = Some(value);
        }
    }

    /// Removes a value, which the caller drops.
    #[must_use]
    pub(crate) fn remove_value(&self, key: u64) -> Option<Box<dyn Any>> {
        let item = self.values.borrow_mut().remove(&key);
        item?.content
    }

    pub(crate) fn add_future(&self, key: u64, color: Color, future: Box<dyn Any>) {
        self.futures.borrow_mut().insert(key, Item { color, content: Some(future) });
    }

    /// Takes a future out, in order to poll or drop it.
    pub(crate) fn remove_future(&self, key: u64) -> Option<Box<dyn Any>> {
        let item = self.futures.borrow_mut().remove(&key);
        item?.content
    }

    /// Drops everything. The worker calls this when it has stopped.
    pub(crate) fn drop_all(&self, shared: &Shared) {
        loop {
            // Not borrowed during a drop, which may remove other values.
            let next = self.futures.borrow_mut().pop_first();
            let Some((_, item)) = next.or_else(|| self.values.borrow_mut().pop_first()) else { return };
            item.drop_held(shared);
        }
    }
}

impl Item {
    /// Drops the content while its color is held (C1). Waits for another thread that is in a
    /// closure of that color, but only for a limited time, because a hold in an unpolled future is
    /// never released.
    fn drop_held(self, shared: &Shared) {
        let Item { color, content } = self;
        let drop_it = || {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(content))) {
                panics::report(shared, context::current_color(), payload);
            }
        };
        let held = (0..HOLD_TRIES).find_map(|_| {
            let held = hold::try_hold(color.alive(), false, Location::caller());
            if held.is_none() {
                yield_now();
            }
            held
        });
        match held {
            Some(hold) => hold::holding(hold, |_| drop_it()),
            None => drop_it(),
        }
    }
}

/// How often a stopped worker tries to hold a color: for about a second.
const HOLD_TRIES: u32 = 100_000;
