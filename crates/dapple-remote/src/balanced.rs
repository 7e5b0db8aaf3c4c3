//! Replicas on several hosts as one service.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dapple_stage::{ByFate, RemoteError};
use dapple_tower::balance::{Balance, Balancer, Change, Config, Probe};
use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::discovery::{Discovery, Member, Members};
use super::peer::Peer;
use super::stage::RemoteStage;

impl Discovery {
    /// The stage of this name on all hosts that are found, as one service: of two random hosts, the
    /// one with fewer requests gets the next. Hosts join and leave as the directory says; an
    /// unreachable host is out until it can be reached.
    ///
    /// ```
    /// use dapple_tower::middleware::retry::{Attempts, Retry};
    /// use dapple_remote::{ByFate, Discovery, RemoteStage};
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// let _entered = runtime.enter();
    /// let hosts: Discovery = "10.0.0.1:7000,10.0.0.2:7000".parse().expect("a list");
    /// let sign = Retry::new(Attempts::new(3).judge(ByFate), hosts.balance::<Vec<u8>, [u8; 16]>("sign"));
    /// # let _ = sign;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

    /// As [`balance`](Self::balance), with another configuration, and stages that `connect` makes
    /// of addresses: with limits, an encoding, a schema or TLS of their own. Only its connection
    /// brings a replica back ([`Probe::Check`]).
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
        // If a connection takes longer, the check fails, but the attempt to connect continues.
        config.check_timeout = CHECK_EVERY;
        let balancer = Balancer::new(config);
        let found = Found { members: self.members(stage), connect: Box::new(connect) };
        let following = dapple_sched::spawn(balancer.follow(found));
        let checking = balancer.check(CHECK_EVERY, |_address, stage: RemoteStage<Req, Resp>| async move {
            stage.peer().connect().await.is_ok()
        });
        let _detached = dapple_sched::spawn(async move {
            checking.await;
            // The balance was dropped.
            following.abort();
        });
        Balance::new(balancer).classify(ByFate)
    }
}

type Connect<T> = Box<dyn Fn(&str) -> Result<T, RemoteError> + Send>;

/// Members as stages, or as replicas.
pub(crate) struct Found<T> {
    pub(crate) members: Members,
    pub(crate) connect: Connect<T>,
}

impl<T> Stream for Found<T> {
    type Item = Change<String, T>;

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

/// How soon a reachable replica is in service again. A check costs nothing while there is a
/// connection.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(250);
