//! The numbers of queues: the free ones, and the queue of each.

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
    Ok(QUEUES[usize::from(number)].get_or_init(|| Box::leak(Box::new(Queue::new(number)))))
}

/// The queue of a number in use.
#[inline]
pub(super) fn find(number: u16) -> &'static Queue {
    QUEUES[usize::from(number)].get().expect("a number is given to a queue that was made")
}

/// Frees a queue without owner and timers.
pub(super) fn give_back(number: u16) {
    FREE.lock().numbers.push(number);
}

struct Free {
    /// Number of queues made; their numbers are below this.
    made: u16,
    /// The free ones among them.
    numbers: Vec<u16>,
}

static FREE: Mutex<Free> = Mutex::new(Free { made: 0, numbers: Vec::new() });

/// Queues are never freed. They are not in the array itself: an empty `OnceLock` is not all zeros, so
/// that every program would have the array in its file.
static QUEUES: [OnceLock<&'static Queue>; 4096] = [const { OnceLock::new() }; 4096];

#[cfg(test)]
mod tests {
    use super::QUEUES;

    #[test]
    fn programs_have_little_of_it_in_their_files() {
        assert!(size_of_val(&QUEUES) <= 0x1_0000, "{} bytes", size_of_val(&QUEUES));
    }
}
