//! The last calls of a mount that changed something, so that one that is sent again happens once.

use std::collections::BTreeMap;

use dapple::sync::oneshot;
use dapple::{Colored, Handle};
use rustix::io::Errno;

use crate::wire::Answer;

/// The last calls that changed something, so that one that is sent again happens once.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// By their numbers, which grow; without an answer those that run.
    calls: BTreeMap<u64, Option<Answer>>,
    /// Calls with lower numbers are answered, or given up by their mount.
    oldest: u64,
    waiters: Vec<(u64, oneshot::Sender<Answer>)>,
}

/// The state of a call that arrives.
pub(super) enum Before {
    New,
    Answered(Answer),
    Running(oneshot::Receiver<Answer>),
}

/// A call that runs. If it is dropped before its end, as by a panic, the call has failed, and those that wait for its answer hear of it.
pub(super) struct Begun {
    recent: Colored<Recent>,
    number: u64,
    is_over: bool,
}

impl Begun {
    pub(super) fn new(recent: &Colored<Recent>, number: u64) -> Begun {
        Begun { recent: recent.clone(), number, is_over: false }
    }

    /// Keeps the answer.
    pub(super) async fn end(mut self, answer: Answer) {
        let number = self.number;
        self.recent.with(move |recent| recent.end(number, answer)).await;
        self.is_over = true;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // After the end of the runtime no call comes again.
        if self.is_over || Handle::try_current().is_none() {
            return;
        }
        let number = self.number;
        self.recent.post(move |recent| recent.end(number, Answer::Failed(Errno::IO.raw_os_error())));
    }
}

impl Recent {
    pub(super) fn begin(&mut self, number: u64) -> Before {
        match self.calls.get(&number) {
            // A message that was on its way for long.
            None if number < self.oldest => Before::Answered(Answer::Failed(Errno::IO.raw_os_error())),
            Some(Some(answer)) => Before::Answered(answer.clone()),
            Some(None) => {
                if self.waiters.len() >= WAITERS_MAX {
                    return Before::Answered(Answer::Failed(Errno::NOBUFS.raw_os_error()));
                }
                let (waiter, answer) = oneshot::channel();
                self.waiters.push((number, waiter));
                Before::Running(answer)
            }
            None => {
                if self.calls.len() >= CALLS_KEPT {
                    // A call that still runs stays known.
                    let oldest = self.calls.iter().find(|(_, answer)| answer.is_some()).map(|(number, _)| *number);
                    let Some(oldest) = oldest else {
                        return Before::Answered(Answer::Failed(Errno::NOBUFS.raw_os_error()));
                    };
                    self.calls.remove(&oldest);
                }
                self.calls.insert(number, None);
                Before::New
            }
        }
    }

    pub(super) fn end(&mut self, number: u64, answer: Answer) {
        for (_, waiter) in self.waiters.extract_if(.., |(waits_for, _)| *waits_for == number) {
            let _ = waiter.send(answer.clone());
        }
        match answer {
            // It did not happen: the mount opens the file, and sends it again.
            Answer::UnknownHandle => drop(self.calls.remove(&number)),
            _ if number < self.oldest => drop(self.calls.remove(&number)),
            answer => drop(self.calls.insert(number, Some(answer))),
        }
    }

    /// Forgets the calls before a number, which their mount does not send again.
    pub(super) fn forget_before(&mut self, number: u64) {
        if number > self.oldest {
            self.oldest = number;
            self.calls.retain(|call, answer| *call >= number || answer.is_none());
        }
    }
}

/// The answers that are kept for calls that come again; a mount has fewer calls in flight.
const CALLS_KEPT: usize = 4096;

/// The most calls that came again and wait for the first of their number.
const WAITERS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use dapple::Colored;
    use rustix::io::Errno;

    use super::{Before, Begun, CALLS_KEPT, Recent, WAITERS_MAX};
    use crate::wire::Answer;

    #[test]
    fn a_call_happens_once_however_many_others_come_meanwhile() {
        let mut recent = Recent::default();
        assert!(matches!(recent.begin(1), Before::New));
        let last = 3 * CALLS_KEPT as u64;
        for number in 2..=last {
            assert!(matches!(recent.begin(number), Before::New));
            recent.end(number, Answer::Names(vec![number.to_le_bytes().to_vec()]));
        }
        let Before::Running(waits) = recent.begin(1) else { panic!("it still runs") };
        recent.end(1, Answer::Done);
        assert_eq!(dapple_sched::block_on(waits), Ok(Answer::Done));
        let answered =
            matches!(recent.begin(last), Before::Answered(Answer::Names(names)) if names == [last.to_le_bytes()]);
        assert!(answered && recent.calls.len() <= CALLS_KEPT);
    }

    #[test]
    fn a_call_that_is_dropped_before_its_end_has_failed() {
        dapple::builder().workers(1).build().expect("a runtime").block_on(async {
            let recent = Colored::new(Recent::default());
            let begin = || recent.with(|recent| recent.begin(1));
            let Before::New = begin().await else { panic!("it is the first") };
            let begun = Begun::new(&recent, 1);
            let Before::Running(waits) = begin().await else { panic!("it runs") };
            drop(begun);
            let failed = Answer::Failed(Errno::IO.raw_os_error());
            assert_eq!(waits.await, Ok(failed.clone()));
            assert!(matches!(begin().await, Before::Answered(answer) if answer == failed));
        });
    }

    #[test]
    fn calls_that_their_mount_does_not_send_again_take_no_room() {
        let mut recent = Recent::default();
        for number in 1..=3 {
            assert!(matches!(recent.begin(number), Before::New));
        }
        recent.end(1, Answer::Done);
        recent.end(3, Answer::UnknownHandle);
        assert!(matches!(recent.begin(3), Before::New), "it comes again once its file is open");
        recent.forget_before(3);
        assert_eq!(recent.calls.len(), 2, "the second one runs");
        recent.end(2, Answer::Done);
        assert_eq!(recent.calls.len(), 1);
        assert!(matches!(recent.begin(1), Before::Answered(Answer::Failed(_))), "a message that came late");
    }

    #[test]
    fn there_is_no_room_for_more_calls_that_run() {
        let mut recent = Recent::default();
        assert!((0..CALLS_KEPT as u64).all(|number| matches!(recent.begin(number), Before::New)));
        assert!(matches!(recent.begin(u64::MAX), Before::Answered(Answer::Failed(_))));
    }

    #[test]
    fn there_is_no_room_for_more_calls_that_come_again() {
        let mut recent = Recent::default();
        assert!(matches!(recent.begin(1), Before::New));
        assert!((0..WAITERS_MAX).all(|_| matches!(recent.begin(1), Before::Running(_))));
        assert!(matches!(recent.begin(1), Before::Answered(Answer::Failed(_))));
    }
}
