//! Calls in datagrams, with their replies: a repeated call must not run again.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// A client's name for a call. The transaction number alone would confuse a restarted client with
/// its earlier run.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) client: SocketAddr,
    pub(crate) message: Vec<u8>,
}

/// The treatment of a call.
#[derive(Debug, PartialEq)]
pub(crate) enum Seen {
    /// It is new, and runs.
    Never,
    /// It is running; its reply will answer this repetition, too.
    Running,
    /// It was answered with this reply, which is sent again.
    Answered(Vec<u8>),
}

/// Running calls, and the last answered ones, up to a number of bytes.
#[derive(Default)]
pub(crate) struct Duplicates {
    calls: HashMap<Key, Option<Vec<u8>>>,
    /// Answered calls, the oldest first.
    answered: VecDeque<Key>,
    bytes: usize,
}

impl Duplicates {
    /// Looks a call up, and records a new one as running.
    pub(crate) fn look(&mut self, key: &Key) -> Seen {
        match self.calls.get(key) {
            Some(Some(reply)) => Seen::Answered(reply.clone()),
            Some(None) => Seen::Running,
            None => {
                self.calls.insert(key.clone(), None);
                Seen::Never
            }
        }
    }

    /// Records the reply to a call.
    pub(crate) fn answer(&mut self, key: Key, reply: Vec<u8>) {
        self.bytes += weight(&key, &reply);
        self.calls.insert(key.clone(), Some(reply));
        self.answered.push_back(key);
        while self.bytes > BYTES_MAX {
            let Some(oldest) = self.answered.pop_front() else { return };
            let reply = self.calls.remove(&oldest).flatten().unwrap_or_default();
            self.bytes -= weight(&oldest, &reply);
        }
    }

    /// Forgets a call that does not run after all.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.calls.remove(key);
    }
}

/// The key is stored twice.
fn weight(key: &Key, reply: &[u8]) -> usize {
    2 * key.message.len() + reply.len() + ENTRY_BYTES
}

/// The limit for replies, kept while clients may repeat calls.
const BYTES_MAX: usize = 4 << 20;
const ENTRY_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> Key {
        Key { client: ([127, 0, 0, 1], 1).into(), message: number.to_be_bytes().to_vec() }
    }

    #[test]
    fn a_call_runs_once() {
        let mut duplicates = Duplicates::default();
        assert_eq!((duplicates.look(&key(1)), duplicates.look(&key(1))), (Seen::Never, Seen::Running));
        duplicates.answer(key(1), vec![7]);
        assert_eq!(duplicates.look(&key(1)), Seen::Answered(vec![7]));
        let other = Key { client: ([127, 0, 0, 2], 1).into(), ..key(1) };
        assert_eq!(duplicates.look(&other), Seen::Never, "another client's call");
        duplicates.forget(&other);
        assert_eq!(duplicates.look(&other), Seen::Never);
    }

    #[test]
    fn old_replies_go_and_running_calls_stay() {
        let mut duplicates = Duplicates::default();
        assert_eq!(duplicates.look(&key(0)), Seen::Never);
        for number in 1..10_000 {
            assert_eq!(duplicates.look(&key(number)), Seen::Never);
            duplicates.answer(key(number), vec![0; 10_000]);
            assert!(duplicates.bytes <= BYTES_MAX && duplicates.calls.len() == duplicates.answered.len() + 1);
        }
        assert_eq!(duplicates.look(&key(0)), Seen::Running);
        assert_eq!(duplicates.look(&key(9_999)), Seen::Answered(vec![0; 10_000]));
        assert_eq!(duplicates.look(&key(1)), Seen::Never);
    }
}
