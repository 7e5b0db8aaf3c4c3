//! A stage in another process, as a service.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dapple_io::time::Instant;
use dapple_stage::RemoteError;
use dapple_sync::sync::{OwnedSemaphorePermit, Semaphore};
use dapple_tower::BoxError;
use percent::path_of;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_service::Service;

use super::deadline::deadline;
use super::encoding::Encoding;
use super::exchange::{Order, exchange};
use super::peer::Peer;
use super::percent;
use super::schema::schema_of;

/// A stage that a [`Host`](super::Host) runs in another process or on another machine: a
/// `tower::Service` like one in this process.
///
/// Clones share one connection, made at the first use. `poll_ready` waits at the limit of requests
/// in flight ([`PeerBuilder::in_flight_max`](super::PeerBuilder::in_flight_max)). When a response
/// is dropped, the host drops its unfinished work, too.
///
/// A request carries the time that it has left: the peer's time-out, or the caller's
/// [deadline](super::within), whichever is earlier.
///
/// # Errors
///
/// A [`Refused`](dapple_tower::Refused) of the host, as if the stage were here; else a
/// [`RemoteError`]. [`Fate::of`](super::Fate::of) says whether the request has run. A request is
/// repeated automatically only if the connection ended before it was sent.
///
/// ```
/// use dapple_io::net::TcpListener;
/// use dapple_stage::BoxError;
/// use dapple_remote::{Host, Peer, RemoteStage};
///
/// let runtime = dapple_io::runtime_builder().workers(2).build()?;
/// runtime.block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let address = listener.local_addr()?.to_string();
///     let host = Host::builder().register_fn("double", |number: u64| async move { Ok::<_, BoxError>(2 * number) }).build();
///     let stop = host.stopper();
///     let serving = dapple_sched::spawn(host.serve(listener));
///
///     let mut double: RemoteStage<u64, u64> = Peer::new(address)?.stage("double");
///     assert_eq!(double.send(21).await?, 42);
///
///     stop.stop();
///     serving.await?;
///     Ok::<(), BoxError>(())
/// })?;
/// # Ok::<(), BoxError>(())
/// ```
pub struct RemoteStage<Req, Resp> {
    peer: Peer,
    name: Arc<str>,
    path: Arc<str>,
    schema: Arc<str>,
    encoding: Encoding,
    timeout: Option<Duration>,
    place: RequestPermit,
    types: PhantomData<fn(Req) -> Resp>,
}

/// A permit for a request in flight.
enum RequestPermit {
    None,
    Waiting(Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send + Sync>>),
    Taken(OwnedSemaphorePermit),
}

/// The reply on its way; see [`RemoteStage`].
///
/// Cancel safe in that dropping it drops the request, wherever it is; its effects until then stay.
pub type ReplyFuture<Resp> = Pin<Box<dyn Future<Output = Result<Resp, BoxError>> + Send>>;

impl<Req, Resp> RemoteStage<Req, Resp> {
    pub(crate) fn of(peer: Peer, name: &str) -> Self {
        let options = &peer.link.options;
        RemoteStage {
            encoding: options.encoding,
            timeout: options.timeout,
            name: name.into(),
            path: path_of(name).into(),
            schema: schema_of::<Req, Resp>().into(),
            place: RequestPermit::None,
            types: PhantomData,
            peer,
        }
    }

    /// Sets the schema that both sides use for the types, if their names say too little, such as
    /// `sign 2`. Characters that no header may have become question marks.
    #[must_use]
    pub fn schema(mut self, schema: &str) -> Self {
        self.schema = super::schema::in_a_header(schema).into();
        self
    }

    /// Sets the encoding of messages; by default the peer's.
    #[must_use]
    pub fn encoding(mut self, encoding: Encoding) -> Self {
        self.encoding = encoding;
        self
    }

    /// Sets how long a request without an earlier deadline may take; by default the peer's
    /// time-out.
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// The peer of its host.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Its name there.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn order(&self) -> Order {
        Order {
            link: self.peer.link.clone(),
            stage: self.name.clone(),
            path: self.path.clone(),
            schema: self.schema.clone(),
            encoding: self.encoding,
            until: earlier(self.timeout.and_then(|timeout| Instant::now().checked_add(timeout)), deadline()),
        }
    }
}

impl<Req, Resp> RemoteStage<Req, Resp>
where
    Req: Serialize,
    Resp: DeserializeOwned + Send + 'static,
{
    /// Waits until a request may be sent, and sends one: `poll_ready` and `call` in one.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it drops the request, wherever that is; its effects until
    /// then stay.
    ///
    /// # Errors
    ///
    /// See [`RemoteStage`].
    pub async fn send(&mut self, request: Req) -> Result<Resp, BoxError> {
        std::future::poll_fn(|cx| Service::<Req>::poll_ready(self, cx)).await?;
        self.call(request).await
    }
}

impl<Req, Resp> Service<Req> for RemoteStage<Req, Resp>
where
    Req: Serialize,
    Resp: DeserializeOwned + Send + 'static,
{
    type Response = Resp;
    type Error = BoxError;
    type Future = ReplyFuture<Resp>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        loop {
            self.place = match &mut self.place {
                RequestPermit::None => RequestPermit::Waiting(Box::pin(take_place(self.peer.link.permits.clone()))),
                RequestPermit::Waiting(waiting) => RequestPermit::Taken(ready!(waiting.as_mut().poll(cx))),
                RequestPermit::Taken(_) => return Poll::Ready(Ok(())),
            }
        }
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let order = self.order();
        let place = std::mem::replace(&mut self.place, RequestPermit::None);
        let message = order.encoding.encode(&request).map_err(|error| RemoteError::Malformed(error.to_string()));
        Box::pin(async move {
            let message = message?;
            let _place = match place {
                RequestPermit::Taken(permit) => permit,
                RequestPermit::None => take_place(order.link.permits.clone()).await,
                RequestPermit::Waiting(waiting) => waiting.await,
            };
            let encoding = order.encoding;
            let bytes = exchange(order, message).await?;
            encoding.decode(&bytes).map_err(|error| RemoteError::Reply(error.to_string()).into())
        })
    }
}

impl<Req, Resp> Clone for RemoteStage<Req, Resp> {
    fn clone(&self) -> Self {
        RemoteStage {
            peer: self.peer.clone(),
            name: self.name.clone(),
            path: self.path.clone(),
            schema: self.schema.clone(),
            encoding: self.encoding,
            timeout: self.timeout,
            place: RequestPermit::None,
            types: PhantomData,
        }
    }
}

impl<Req, Resp> fmt::Debug for RemoteStage<Req, Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStage")
            .field("peer", &self.peer.address())
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

async fn take_place(permits: Arc<Semaphore>) -> OwnedSemaphorePermit {
    permits.acquire_owned().await.expect("nobody closes it")
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
