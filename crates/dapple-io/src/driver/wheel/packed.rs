//! A waker in nine bytes instead of sixteen: its data, and the number of its table of functions.
//!
//! A program has few such tables: one for the tasks of a runtime, one for each type that implements
//! `Wake`. They get numbers in a table of the process, by their address. If the table is full, the
//! waker is boxed.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::task::{RawWakerVTable, Waker};

/// A waker in parts. Dropping it without unpacking leaks it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed {
    pub(super) data: *const (),
    /// Never [`NO_WAKER`].
    pub(super) table: u8,
}

impl Packed {
    pub(super) fn new(waker: Waker) -> Self {
        match number_of(waker.vtable()) {
            Some(table) => {
                let data = waker.data();
                // The waker's reference, or any other resource of it, is now in `data`.
                std::mem::forget(waker);
                Packed { data, table }
            }
            None => Packed { data: Box::into_raw(Box::new(waker)).cast_const().cast(), table: BOXED },
        }
    }

    /// Puts the waker together.
    ///
    /// # Safety
    ///
    /// `self` comes from [`Packed::new`], and is unpacked once.
    pub(super) unsafe fn unpack(self) -> Waker {
        if self.table == BOXED {
            // SAFETY: `new` made this box and gave it up.
            return *unsafe { Box::from_raw(self.data.cast_mut().cast::<Waker>()) };
        }
        // SAFETY: data and table belong to the waker that `new` got and has forgotten.
        unsafe { Waker::new(self.data, table_of(self.table)) }
    }

    /// Its table and data; `None` if it is boxed.
    pub(super) fn parts(self) -> Option<(&'static RawWakerVTable, *const ())> {
        (self.table != BOXED).then(|| (table_of(self.table), self.data))
    }

    /// Whether it wakes the same task as `waker`; as [`Waker::will_wake`], may return false by
    /// mistake.
    pub(super) fn will_wake(self, waker: &Waker) -> bool {
        self.table != BOXED && self.data == waker.data() && ptr::eq(table_of(self.table), waker.vtable())
    }
}

/// The number of a table, which gets one if it has none yet and one is left.
fn number_of(table: &'static RawWakerVTable) -> Option<u8> {
    let wanted = ptr::from_ref(table).cast_mut();
    let first = (wanted.addr() >> 4) % PLACES;
    for step in 0..PROBES {
        let place = (first + step) % PLACES;
        // Relaxed, here and below: the pointer is to constant data that existed before the program
        // began.
        let mut there = TABLES[place].load(Ordering::Relaxed);
        if there.is_null() {
            match TABLES[place].compare_exchange(ptr::null_mut(), wanted, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => there = wanted,
                Err(other) => there = other,
            }
        }
        if there == wanted {
            return Some(place as u8 + 1);
        }
    }
    None
}

fn table_of(number: u8) -> &'static RawWakerVTable {
    let table = TABLES[usize::from(number) - 1].load(Ordering::Relaxed);
    // SAFETY: a number is given out once its place holds a `&'static` table, which stays there.
    unsafe { &*table.cast_const() }
}

/// No waker.
pub(super) const NO_WAKER: u8 = 0;
/// `data` points to a boxed waker.
const BOXED: u8 = u8::MAX;
/// Number of tables with numbers, from 1 to this.
const PLACES: usize = 254;
/// Places tried for one table.
const PROBES: usize = 8;

static TABLES: [AtomicPtr<RawWakerVTable>; PLACES] = [const { AtomicPtr::new(ptr::null_mut()) }; PLACES];

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::RawWaker;

    use super::*;

    /// The table of wakers that count themselves and their wakes. A static, because it has one
    /// address: a table made by a constant expression, such as that of `Waker::from`, may have
    /// another address in each place that names it.
    static COUNTING: RawWakerVTable = RawWakerVTable::new(
        |data| {
            WAKERS.fetch_add(1, Ordering::Relaxed);
            RawWaker::new(data, &COUNTING)
        },
        |_| {
            WAKES.fetch_add(1, Ordering::Relaxed);
            WAKERS.fetch_sub(1, Ordering::Relaxed);
        },
        |_| _ = WAKES.fetch_add(1, Ordering::Relaxed),
        |_| _ = WAKERS.fetch_sub(1, Ordering::Relaxed),
    );
    static WAKERS: AtomicUsize = AtomicUsize::new(0);
    static WAKES: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn a_waker_survives_being_packed() {
        WAKERS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the functions of the table only count, whatever the data is and on any thread.
        let waker = unsafe { Waker::new(ptr::null(), &COUNTING) };
        let packed = Packed::new(waker.clone());
        assert!(packed.will_wake(&waker));
        assert!(!packed.will_wake(Waker::noop()));
        // SAFETY: packed above, and put together once.
        unsafe { packed.unpack() }.wake();
        assert_eq!(WAKES.load(Ordering::Relaxed), 1);
        drop(waker);
        assert_eq!(WAKERS.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn more_tables_than_there_are_numbers_do_no_harm() {
        fn clone(data: *const ()) -> RawWaker {
            // SAFETY: the data of these wakers is their table, which lives for ever.
            RawWaker::new(data, unsafe { &*data.cast::<RawWakerVTable>() })
        }
        fn nothing(_: *const ()) {}
        // Reachable, so that no leak checker takes them for leaked.
        static MADE: std::sync::Mutex<Vec<&'static RawWakerVTable>> = std::sync::Mutex::new(Vec::new());
        // The other test needs this number, and may run after all were assigned.
        let before = number_of(&COUNTING);
        assert!(before.is_some());
        let mut boxed = 0;
        for _ in 0..PLACES + 50 {
            let table: &'static RawWakerVTable =
                Box::leak(Box::new(RawWakerVTable::new(clone, nothing, nothing, nothing)));
            MADE.lock().unwrap().push(table);
            // SAFETY: these functions do nothing that depends on data or thread.
            let packed = Packed::new(unsafe { Waker::new(ptr::from_ref(table).cast(), table) });
            boxed += usize::from(packed.table == BOXED);
            // SAFETY: packed above, and put together once.
            let waker = unsafe { packed.unpack() };
            assert!(ptr::eq(waker.vtable(), table));
        }
        assert!(boxed >= 50);
        assert_eq!(number_of(&COUNTING), before, "a table that has a number keeps it");
    }
}
