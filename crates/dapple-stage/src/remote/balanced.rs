//! Replicas on several hosts as one service.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dapple_tower::balance::{Balance, Balancer, Change, Classify, Config, Outcome, Probe};
use dapple_tower::middleware::retry::{Judge, Verdict};
use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::discovery::{Discovery, Member, Members};
use super::error::{Fate, RemoteError};
use super::peer::Peer;
use super::stage::RemoteStage;
use crate::{BoxError, Reason, Refused};

/// Goes by what has become of a request: what its end says about the replica, for a [`Balance`], and whether it may be sent again,
/// for [`Attempts`](dapple_tower::middleware::retry::Attempts).
///
/// A handler that fails is no failure of the replica. A replica without a connection is out at once, until there is one. Sent again
/// is only what has surely not run, and may do better elsewhere or later: so nothing runs twice.
///
/// ```
/// use dapple_tower::middleware::retry::{Attempts, Retry};
/// use dapple_stage::remote::{ByFate, Discovery, RemoteStage};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// let _entered = runtime.enter();
/// let hosts: Discovery = "10.0.0.1:7000,10.0.0.2:7000".parse().expect("a list");
/// let sign = Retry::new(Attempts::new(3).judge(ByFate), hosts.balance::<Vec<u8>, [u8; 16]>("sign"));
/// # let _ = sign;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ByFate;

impl<Res> Classify<Res> for ByFate {
    fn classify(&self, result: &Result<Res, BoxError>) -> Outcome {
        result.as_ref().map_or_else(ByFate::outcome_of, |_| Outcome::Success)
    }
}

impl ByFate {
    /// What an error says about the replica.
    pub(crate) fn outcome_of(error: &BoxError) -> Outcome {
        if let Some(refused) = Refused::find(&**error) {
            return match refused.reason {
                Reason::Unavailable | Reason::Stopping => Outcome::Down,
                _ => Outcome::Refused,
            };
        }
        match RemoteError::find(error) {
            Some(RemoteError::Unreachable { .. } | RemoteError::Unknown { .. }) => Outcome::Down,
            Some(RemoteError::Failed(_) | RemoteError::Malformed(_) | RemoteError::TooLarge(_)) => Outcome::Success,
            _ => Outcome::Failure,
        }
    }
}

impl<Res> Judge<Res> for ByFate {
    fn judge(&self, result: &Result<Res, BoxError>) -> Verdict {
        let Err(error) = result else { return Verdict::Done };
        if Fate::of(error) != Fate::NotRun {
            return Verdict::Done;
        }
        match (Refused::find(&**error), RemoteError::find(error)) {
            (Some(Refused { reason: Reason::Deadline, .. }), _) => Verdict::Done,
            (Some(refused), _) => Verdict::After(refused.retry_after),
            // The balance knows others, and when this one is there again.
            (None, Some(RemoteError::Unreachable { .. })) => Verdict::Again,
            (None, _) => Verdict::Done,
        }
    }
}

impl Discovery {
    /// The stage of this name on all hosts that are found, as one service: of two hosts drawn by chance, the one with fewer
    /// requests gets the next. Hosts join and leave as the directory says; one that cannot be reached is out until it can.
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    pub fn balance<Req, Resp>(&self, stage: &str) -> Balance<String, RemoteStage<Req, Resp>, ByFate>
    where
        Req: Serialize + 'static,
        Resp: DeserializeOwned + Send + 'static,
    {
        let name = stage.to_owned();
        self.balance_with(stage, Config::default(), move |address| Ok(Peer::new(address)?.stage(&name)))
    }

    /// As [`balance`](Self::balance), with another configuration, and stages that `connect` makes of addresses: with limits, an encoding, a
    /// schema or TLS of their own. What brings a replica back is always its connection ([`Probe::Check`]).
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    pub fn balance_with<Req, Resp>(
        &self,
        stage: &str,
        mut config: Config,
        connect: impl Fn(&str) -> Result<RemoteStage<Req, Resp>, RemoteError> + Send + 'static,
    ) -> Balance<String, RemoteStage<Req, Resp>, ByFate>
    where
        Req: Serialize + 'static,
        Resp: DeserializeOwned + Send + 'static,
    {
        config.probe = Probe::Check;
        // Who takes longer to connect is not there yet; the attempt goes on.
        config.check_timeout = CHECK_EVERY;
        let balancer = Balancer::new(config);
        let found = Found { members: self.members(stage), connect: Box::new(connect) };
        let following = dapple_sched::spawn(balancer.follow(found));
        let checking = balancer.check(CHECK_EVERY, |_address, stage: RemoteStage<Req, Resp>| async move {
            stage.peer().connect().await.is_ok()
        });
        let _detached = dapple_sched::spawn(async move {
            checking.await;
            // Nobody balances any more.
            following.abort();
        });
        Balance::new(balancer).classify(ByFate)
    }
}

type Connect<Req, Resp> = Box<dyn Fn(&str) -> Result<RemoteStage<Req, Resp>, RemoteError> + Send>;

/// Members as stages.
struct Found<Req, Resp> {
    members: Members,
    connect: Connect<Req, Resp>,
}

impl<Req, Resp> Stream for Found<Req, Resp> {
    type Item = Change<String, RemoteStage<Req, Resp>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(Pin::new(&mut self.members).poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(Member::Left(address)) => return Poll::Ready(Some(Change::Remove(address))),
                Some(Member::Joined(address)) => match (self.connect)(&address) {
                    Ok(stage) => return Poll::Ready(Some(Change::Insert(address, stage))),
                    Err(problem) => tracing::warn!(%problem, address, "a host is left out"),
                },
            }
        }
    }
}

/// How soon a replica that can be reached again is in again. A look costs nothing while there is a connection.
const CHECK_EVERY: Duration = Duration::from_millis(250);
