//! A server: the state that its connections share, its life, its end.

use std::future::{Future, poll_fn};
use std::io;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use dapple_io::signal::{SIGINT, SIGTERM, Signal, signal};
use dapple_io::time::timeout;
use dapple_sched::Handle;
use dapple_sync::task::{CancellationToken, First, race};
use tracing::{info, warn};

use crate::accept::Accepting;
use crate::admission::Gate;
use crate::builder::Serve;
use crate::connections::Order;
use crate::handle::{Counts, Numbers};
use crate::host::{Admission as ConnectionAdmission, EndStage, Ending, Host};
use crate::http::Limits;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::request::{Held, OnRefusal};
use crate::service::HttpService;
use crate::tower::{OnFull, TowerHost};
use dapple_io::net::Listener;

/// The state that all connections of a server share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) limits: Arc<Limits>,
    pub(crate) connections: Arc<ConnectionAdmission>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) numbers: Arc<Numbers>,
    pub(crate) on_refusal: Option<OnRefusal>,
    pub(crate) on_full: Option<OnFull>,
}

impl<L: Listener, V: HttpService> Serve<L, V> {
    /// Runs the server from start to end.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        let mut signals = match self.has_signals {
            true => Some([signal(SIGTERM)?, signal(SIGINT)?]),
            false => None,
        };
        self.check_connections_max();
        let gate = Arc::new(Gate::new(self.admission, self.describe));
        let _ = self.gate.set(gate.clone());
        if gate.admission().is_some() {
            self.listener.note_arrivals();
        }
        let runtime = Handle::current();
        let numbers = Arc::new(Numbers { requests: Metrics::new(runtime.workers()), runtime });
        let _ = self.numbers.set(numbers.clone());
        let shared = Arc::new(Shared {
            numbers,
            limits: Arc::new(self.options.limits()),
            options: self.options,
            connections: self.connections,
            counts: self.counts,
            gate,
            on_refusal: self.on_refusal,
            on_full: self.on_full,
        });
        let stage = Arc::<EndStage>::default();
        let host = TowerHost {
            service: Mutex::new(Held::of(self.service)),
            shared: shared.clone(),
            stage: stage.clone(),
            #[cfg(feature = "tls")]
            tls: self.tls,
            connection: PhantomData,
        };
        let accepting = Accepting {
            listener: self.listener,
            host: Arc::new(host),
            admission: shared.connections.clone(),
            stage,
            is_short: false,
            is_shared: shared.options.shares_listener,
            // The program may have passed the socket on, or inherited it.
            is_own: false,
            last_pause: LAST_PAUSE,
        };
        let stop = stopping(self.stop.clone(), self.shutdown.take(), signals.as_mut());
        let accepted = accept_until(accepting, stop).await;
        match &mut signals {
            Some(signals) => {
                if let First::Left(()) = race(any(signals), shared.finish()).await {
                    warn!("second signal: cutting connections");
                }
            }
            None => shared.finish().await,
        }
        shared.cut();
        accepted
    }

    /// Warns if the system leaves room for fewer connections than configured.
    fn check_connections_max(&self) {
        if let Some(asked) = self.options.connections_max
            && asked > self.connections.max()
        {
            let connections_max = self.connections.max();
            warn!(
                asked,
                connections_max, "the limit on open files leaves room for fewer connections; raise it with `ulimit -n`"
            );
        }
    }
}

async fn accept_until<L: Listener, H: Host<Connection = L::Connection>>(
    accepting: Accepting<L, H>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let stage = accepting.stage.clone();
    let mut accepting = pin!(accepting.run());
    match race(stop, accepting.as_mut()).await {
        First::Right(accepted) => accepted,
        First::Left(()) => {
            stage.begin(Ending::Stop);
            accepting.await
        }
    }
}

impl Shared {
    /// Runs the stages of the end, until no connection is left or the time is up.
    async fn finish(&self) {
        let (options, connections) = (&self.options, self.connections.connections());
        let stages = async {
            let _ = timeout(options.leave_timeout, connections.all_ended()).await;
            connections.order(Order::LastReply);
            let _ = timeout(options.last_reply_timeout, connections.all_ended()).await;
            connections.order(Order::Finish);
            connections.all_ended().await;
        };
        let _ = timeout(options.drain, stages).await;
    }

    fn cut(&self) {
        let open = self.connections.open();
        if open > 0 {
            info!(open, "connections were cut at the end");
            self.counts.cut(open);
            self.connections.connections().order(Order::Cut);
        }
    }
}

/// Ready when the server should end.
async fn stopping(
    stop: CancellationToken,
    mut shutdown: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    signals: Option<&mut [Signal; 2]>,
) {
    let handle = Handle::current();
    let (mut stop, mut closing) = (pin!(stop.cancelled()), pin!(handle.closing()));
    let mut signals = pin!(async {
        match signals {
            Some(signals) => any(signals).await,
            None => std::future::pending().await,
        }
    });
    poll_fn(|cx| {
        let is_ready = shutdown.as_mut().is_some_and(|shutdown| shutdown.as_mut().poll(cx).is_ready())
            || stop.as_mut().poll(cx).is_ready()
            || closing.as_mut().poll(cx).is_ready()
            || signals.as_mut().poll(cx).is_ready();
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Waits for either signal. Cancel safe.
async fn any([a, b]: &mut [Signal; 2]) {
    let (mut a, mut b) = (pin!(a.recv()), pin!(b.recv()));
    poll_fn(|cx| if a.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { b.as_mut().poll(cx) }).await;
}

/// At the end: how long no connected client may have appeared before the server stops accepting.
const LAST_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
