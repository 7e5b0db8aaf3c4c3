//! Replicas in other processes and on other machines, after one queue: *replicate* over the network
//! (Gribble, 4.4.4, Figure 27).
//!
//! Each host has the stage [`STAGE`] of `dapple stage-host`, with a log of its own. Of two random
//! hosts, the one with fewer tasks gets the next. A task that a host has certainly not begun goes
//! to another one; all other failures reach the client as errors, because whether the task is in a
//! log is unknown.

use std::future::Future;
use std::time::Duration;

use dapple::stage::balance::{Balancer, Config};
use dapple::stage::graph::Graph;
use dapple::stage::middleware::retry::{Attempts, Budget, Judge, Retry, Verdict};
use dapple::stage::remote::{Discovery, Fate, Peer, RemoteError, RemoteStage};
use dapple::stage::{Backoff, BoxError, Reason, Refused, Stage};
use dapple::time::sleep;

use super::{Failure, Kind, STAGE, Signed, Task};
use crate::args::Args;

/// All hosts. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Hosts(Stage<Task, Signed, BoxError>);

impl Hosts {
    pub(super) fn new(args: &Args, hosts: &Discovery) -> Hosts {
        let width = args.width();
        let balance = hosts.balance_with(STAGE, Config::default(), move |address| {
            Ok(Peer::builder(address).in_flight_max(width).build()?.stage(STAGE))
        });
        let balancer = balance.balancer().clone();
        let backoff = Backoff::new(RETRY_WAIT_MIN, RETRY_WAIT_MAX);
        let attempts = Attempts::new(ATTEMPTS_MAX).backoff(backoff).budget(Budget::default()).judge(NotBegun);
        let front = Stage::builder(STAGE).queue_len_max(args.queue()).width(width).shed();
        let front = front.wrap(Retry::new(attempts, balance));
        drop(dapple::spawn(widen(front.clone(), balancer, width)));
        Hosts(front)
    }

    pub(super) fn sign(&self, task: Task) -> impl Future<Output = Result<Signed, Failure>> + Send + use<> {
        let asked = self.0.ask(task);
        async move { Ok(asked.await?) }
    }

    pub(super) fn draw(&self, graph: &Graph) {
        graph.add(&self.0);
    }
}

/// Takes as many tasks out of the queue as all present hosts may have.
async fn widen(front: Stage<Task, Signed, BoxError>, hosts: Balancer<String, RemoteStage<Task, Signed>>, width: usize) {
    let mut before = 1;
    loop {
        let now = hosts.serving_len().max(1);
        if now != before {
            front.set_width(width.saturating_mul(now));
            before = now;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Sends a task again, at once, if no host has certainly begun it, since other hosts may have room;
/// but not if it would be too late, or no host would do better.
#[derive(Clone, Copy, Debug)]
struct NotBegun;

impl Judge<Signed> for NotBegun {
    fn judge(&self, result: &Result<Signed, BoxError>) -> Verdict {
        let Err(error) = result else { return Verdict::Done };
        if Fate::of(error) != Fate::NotRun {
            return Verdict::Done;
        }
        match (Refused::find(&**error), error.downcast_ref()) {
            (Some(refused), _) if refused.reason != Reason::Deadline => Verdict::Again,
            (None, Some(RemoteError::Unreachable { .. })) => Verdict::Again,
            _ => Verdict::Done,
        }
    }
}

impl From<BoxError> for Failure {
    fn from(error: BoxError) -> Failure {
        if let Some(refused) = Refused::find(&*error) {
            return Failure::Refused(with_time(refused.clone()));
        }
        match error.downcast_ref() {
            Some(RemoteError::Unreachable { retry_after, .. }) => {
                Failure::Refused(Refused::new(Reason::Unavailable, *retry_after))
            }
            Some(RemoteError::TimedOut { sent: false, .. }) => {
                Failure::Refused(Refused::new(Reason::Unavailable, LOOK_EVERY))
            }
            _ => Failure::Failed(Kind::Internal, error.to_string()),
        }
    }
}

/// If there is no host, and no expected time, a client that retries at once would only be refused
/// again.
fn with_time(mut refused: Refused) -> Refused {
    if refused.reason == Reason::Unavailable && refused.retry_after.is_zero() {
        refused.retry_after = LOOK_EVERY;
    }
    refused
}

/// Including the first attempt. Tasks of a host that just died find another host at the second.
const ATTEMPTS_MAX: u32 = 4;

const RETRY_WAIT_MIN: Duration = Duration::from_millis(2);
const RETRY_WAIT_MAX: Duration = Duration::from_millis(50);

/// How soon a change in the number of hosts is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(error: RemoteError) -> BoxError {
        error.into()
    }

    #[test]
    fn only_tasks_that_certainly_have_not_begun_are_sent_again() {
        let peer = || "a:1".to_owned();
        let (again, done) = (Verdict::Again, Verdict::Done);
        let unreachable =
            || remote(RemoteError::Unreachable { peer: peer(), why: String::new(), retry_after: Duration::ZERO });
        let cases: [(BoxError, Verdict); 8] = [
            (unreachable(), again),
            (Refused::new(Reason::Stopping, Duration::ZERO).into(), again),
            (Refused::new(Reason::Full { len: 1 }, Duration::ZERO).into(), again),
            (Refused::new(Reason::Deadline, Duration::ZERO).into(), done),
            (remote(RemoteError::Unknown { peer: peer(), why: String::new() }), done),
            (remote(RemoteError::TimedOut { peer: peer(), sent: true }), done),
            (remote(RemoteError::Failed("disk full".to_owned())), done),
            ("something else".into(), done),
        ];
        for (error, verdict) in cases {
            let text = error.to_string();
            assert_eq!(NotBegun.judge(&Err(error)), verdict, "{text}");
        }
    }

    #[test]
    fn a_client_is_told_that_nothing_was_done_only_if_that_is_certain() {
        let peer = || "a:1".to_owned();
        let lost = Failure::from(remote(RemoteError::Unknown { peer: peer(), why: "reset".to_owned() }));
        assert!(matches!(&lost, Failure::Failed(Kind::Internal, text) if text.contains("may have run")), "{lost:?}");
        let late = Failure::from(remote(RemoteError::TimedOut { peer: peer(), sent: true }));
        assert!(matches!(late, Failure::Failed(Kind::Internal, _)));
        let failed = Failure::from(remote(RemoteError::Failed("cannot write to the log: x".to_owned())));
        assert!(matches!(&failed, Failure::Failed(Kind::Internal, text) if text.contains("cannot write to the log")));
        let nobody = Failure::from(BoxError::from(Refused::new(Reason::Unavailable, Duration::ZERO)));
        assert!(matches!(&nobody, Failure::Refused(refused) if refused.retry_after == LOOK_EVERY), "{nobody:?}");
        let soon = Failure::from(BoxError::from(Refused::new(Reason::Unavailable, RETRY_WAIT_MIN)));
        assert!(matches!(&soon, Failure::Refused(refused) if refused.retry_after == RETRY_WAIT_MIN), "{soon:?}");
        let unsent = Failure::from(remote(RemoteError::TimedOut { peer: peer(), sent: false }));
        assert!(matches!(unsent, Failure::Refused(_)));
    }
}
