//! Replicas in other processes and on other machines, behind one queue: *replicate* over the network (Gribble, 4.4.4, Figure 27).
//!
//! Each host has the stage [`STAGE`] of `dapple stage-host`, with a log of its own. Of two hosts drawn by chance, the one with fewer tasks gets
//! the next. What a host has surely not begun goes to another one; all else ends with an error that the client is told, as nobody knows
//! whether it is in a log.

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

/// All hosts. Clones are the same ones.
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

/// As many are taken out of the queue as all hosts that are there may have.
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

/// Sends again what has surely not begun, at once, as others may have room; but not what would be too late, or is no better elsewhere.
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

/// Where there is no host, and nobody knows when there will be one, who comes back at once would only ask again and again.
fn with_time(mut refused: Refused) -> Refused {
    if refused.reason == Reason::Unavailable && refused.retry_after.is_zero() {
        refused.retry_after = LOOK_EVERY;
    }
    refused
}

/// The first one included. Where a host has just died, its tasks find another with the second.
const ATTEMPTS_MAX: u32 = 4;

const RETRY_WAIT_MIN: Duration = Duration::from_millis(2);
const RETRY_WAIT_MAX: Duration = Duration::from_millis(50);

/// How soon it is seen that there are more hosts, or fewer.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(error: RemoteError) -> BoxError {
        error.into()
    }

    #[test]
    fn only_what_has_surely_not_begun_is_sent_again() {
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
    fn a_client_is_told_that_nothing_was_done_only_where_that_is_sure() {
        let peer = || "a:1".to_owned();
        let lost = Failure::from(remote(RemoteError::Unknown { peer: peer(), why: "reset".to_owned() }));
        assert!(matches!(&lost, Failure::Failed(Kind::Internal, text) if text.contains("may have run")), "{lost:?}");
        let late = Failure::from(remote(RemoteError::TimedOut { peer: peer(), sent: true }));
        assert!(matches!(late, Failure::Failed(Kind::Internal, _)));
        let failed = Failure::from(remote(RemoteError::Failed("the log cannot be written: x".to_owned())));
        assert!(matches!(&failed, Failure::Failed(Kind::Internal, text) if text.contains("cannot be written")));
        let nobody = Failure::from(BoxError::from(Refused::new(Reason::Unavailable, Duration::ZERO)));
        assert!(matches!(&nobody, Failure::Refused(refused) if refused.retry_after == LOOK_EVERY), "{nobody:?}");
        let soon = Failure::from(BoxError::from(Refused::new(Reason::Unavailable, RETRY_WAIT_MIN)));
        assert!(matches!(&soon, Failure::Refused(refused) if refused.retry_after == RETRY_WAIT_MIN), "{soon:?}");
        let unsent = Failure::from(remote(RemoteError::TimedOut { peer: peer(), sent: false }));
        assert!(matches!(unsent, Failure::Refused(_)));
    }
}
