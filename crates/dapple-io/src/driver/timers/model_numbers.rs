//! The numbers of queues in a model: each execution has queues of its own, which all end with it.

use std::cell::RefCell;
use std::io;
use std::ptr::NonNull;

use super::Queue;

pub(super) fn take() -> io::Result<&'static Queue> {
    QUEUES.with_borrow_mut(|queues| {
        let queue = Box::leak(Box::new(Queue::new(queues.len() as u16)));
        queues.push((NonNull::from(&*queue), false));
        Ok(&*queue)
    })
}

pub(super) fn find(number: u16) -> &'static Queue {
    // SAFETY: it is freed at the end of the execution.
    QUEUES.with_borrow(|queues| unsafe { queues[usize::from(number)].0.as_ref() })
}

pub(super) fn give_back(number: u16) {
    QUEUES.with_borrow_mut(|queues| {
        let was_given = std::mem::replace(&mut queues[usize::from(number)].1, true);
        assert!(!was_given, "a queue was given back twice");
    });
}

/// Ends an execution.
pub(crate) fn end() {
    for (queue, was_given) in QUEUES.take() {
        assert!(was_given, "a queue was not given back");
        // SAFETY: made by `take`; no thread of the model is left.
        drop(unsafe { Box::from_raw(queue.as_ptr()) });
    }
}

thread_local! {
    /// Each with a flag that it was given back. All threads of a model are one thread of the
    /// process.
    static QUEUES: RefCell<Vec<(NonNull<Queue>, bool)>> = const { RefCell::new(Vec::new()) };
}
