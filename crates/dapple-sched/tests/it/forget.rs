//! Forgetting on purpose, for the tests of all crates.

use std::mem::ManuallyDrop;
use std::sync::Mutex;
use std::sync::atomic::AtomicPtr;

/// As `mem::forget`: nothing drops the value. A list keeps it reachable, so that LeakSanitizer
/// reports only mistakes.
pub(crate) fn forget<T>(value: T) {
    static FORGOTTEN: Mutex<Vec<AtomicPtr<()>>> = Mutex::new(Vec::new());
    let value = Box::into_raw(Box::new(ManuallyDrop::new(value)));
    FORGOTTEN.lock().unwrap().push(AtomicPtr::new(value.cast()));
}
