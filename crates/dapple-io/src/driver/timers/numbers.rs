//! The numbers of queues: which are free, and the queue of each.

use std::io;
use std::sync::OnceLock;

use super::Queue;
use crate::lock::Mutex;

/// A queue without an owner: one that is free, or a new one.
///
/// # Errors
///
/// The process has too many workers.
pub(super) fn take() -> io::Result<&'static Queue> {
    let number = {
        let mut free = FREE.lock();
        match free.numbers.pop() {
            Some(number) => number,
            None if usize::from(free.made) == QUEUES.len() => {
                return Err(io::Error::other(format!(
                    "this process has {} workers with timers already: shut other runtimes down first",
                    QUEUES.len()
                )));
            }
            None => {
                free.made += 1;
                free.made - 1
            }
        }
    };
    Ok(QUEUES[usize::from(number)].get_or_init(|| Queue::new(number)))
}

/// The queue with a number that was given out.
#[inline]
pub(super) fn find(number: u16) -> &'static Queue {
    QUEUES[usize::from(number)].get().expect("a number is given to a queue that was made")
}

/// The queue has neither an owner nor timers.
pub(super) fn give_back(number: u16) {
    FREE.lock().numbers.push(number);
}

struct Free {
    /// Queues that were made; their numbers are below this.
    made: u16,
    /// Those of them that are free.
    numbers: Vec<u16>,
}

static FREE: Mutex<Free> = Mutex::new(Free { made: 0, numbers: Vec::new() });

/// Memory is touched for those only that were made.
static QUEUES: [OnceLock<Queue>; 4096] = [const { OnceLock::new() }; 4096];
