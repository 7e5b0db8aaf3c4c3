//! One server: its connections, their limits, and the requests that wait for one.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_io::time::{Instant, timeout};
use dapple_sync::sync::Semaphore;
use dapple_sync::sync::limit::{Limit, Permit};
use hyper::body::Body;

use super::begin::{Opened, begin};
use super::hosts::{Config, Hosts};
use super::line::{Kind, Line};
use super::pool::{Pool, STREAMS_MAX, Sender1};
use super::session::Session;
use super::sweep::{Mark, sweep};
use crate::{ConnectError, Origin, Scheme};

/// A server, with the connections to it.
///
/// | field | guarded by | changes |
/// |---|---|---|
/// | `pool` | its lock, never held across an `await` | with each request of HTTP/1.1, and with each connection |
/// | `is_swept` | the lock of `pool` | true while a task closes what is too old |
/// | `is_crowded` | the lock of `pool` | true before the first of the crowd looks for room; false, with a permit of `freed`, once there may be some |
/// | `turns` | itself | a permit for each request in flight |
/// | `crowd` | itself | held by the first of those that have a turn and find no room for a connection; the others queue for it |
/// | `open` | atomic; what makes room goes on to take the lock of `pool` | up before a connection is made, down when its task has ended |
/// | `spoken` | atomic, a hint | with each connection |
pub struct Host<B> {
    pub(super) origin: Origin,
    pub(super) config: Arc<Config>,
    pool: Mutex<Swept<B>>,
    turns: Limit,
    crowd: dapple_sync::sync::Mutex<()>,
    crowd_len: AtomicUsize,
    freed: Semaphore,
    open: AtomicUsize,
    /// Held by the one request that finds out which version the server speaks, or that opens another connection for many.
    opening: dapple_sync::sync::Mutex<()>,
    /// The version of the last connection, or [`UNKNOWN`].
    spoken: AtomicU8,
    is_retired: AtomicBool,
}

struct Swept<B> {
    pool: Pool<B>,
    is_swept: bool,
    is_crowded: bool,
}

/// A place among the open connections, until it is dropped.
#[derive(Debug)]
pub struct OpenSlot<B>(Arc<Host<B>>);

impl<B> Drop for OpenSlot<B> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.config.open().fetch_sub(1, Ordering::Relaxed);
        self.0.freed();
    }
}

/// Permission for one request to the server. If dropped, it lets the next request go.
#[derive(Debug)]
pub struct Turn<B> {
    pub(super) host: Arc<Host<B>>,
    permit: Option<Permit>,
}

impl<B> Turn<B> {
    /// The server.
    pub fn host(&self) -> &Arc<Host<B>> {
        &self.host
    }

    /// The request is over.
    pub(super) fn end(&mut self) {
        if self.permit.take().is_some() {
            self.host.freed();
        }
    }
}

impl<B> Drop for Turn<B> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<B> Host<B> {
    /// There may be room for a connection, or on one: the first of the crowd looks again.
    fn freed(&self) {
        if std::mem::take(&mut self.lock().is_crowded) {
            self.freed.add_permits(1);
        }
    }

    /// Notes that the sweeping task has gone before its end.
    pub(super) fn is_not_swept(&self) {
        self.lock().is_swept = false;
    }

    fn lock(&self) -> MutexGuard<'_, Swept<B>> {
        // Nothing that can panic half-way happens under the lock.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Send + 'static> Host<B> {
    /// A server to which there is no connection so far.
    pub fn new(origin: Origin, config: Arc<Config>) -> Arc<Host<B>> {
        let each = if origin.scheme == Scheme::Http { 1 } else { STREAMS_MAX };
        let turns = config.limits.connections_max.saturating_mul(each);
        let turns = Limit::new(turns).waiting_max(config.limits.waiting_max);
        Arc::new(Host {
            origin,
            config,
            pool: Mutex::new(Swept { pool: Pool::default(), is_swept: false, is_crowded: false }),
            turns,
            crowd: dapple_sync::sync::Mutex::new(()),
            crowd_len: AtomicUsize::new(0),
            freed: Semaphore::new(0),
            open: AtomicUsize::new(0),
            opening: dapple_sync::sync::Mutex::new(()),
            spoken: AtomicU8::new(UNKNOWN),
            is_retired: AtomicBool::new(false),
        })
    }

    /// Where it is.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The number of open connections, and of idle ones of HTTP/1.1.
    pub fn connections(&self) -> (usize, usize) {
        (self.open.load(Ordering::Relaxed), self.lock().pool.idle_len())
    }

    /// Takes the server out of use: requests in flight continue, but their connections are not
    /// kept.
    pub fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
        self.with_pool(Pool::clear);
    }

    /// Whether [`retire`](Host::retire) was called.
    pub fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// Waits for a turn.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it resolves, it waits no more.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Busy`]: too many requests wait, or this one has waited for too long.
    pub async fn turn(self: &Arc<Self>) -> Result<Turn<B>, ConnectError> {
        let permit = match self.turns.try_acquire() {
            Some(permit) => permit,
            None => self.wait(self.turns.acquire()).await?.map_err(|_| self.busy())?,
        };
        Ok(Turn { host: self.clone(), permit: Some(permit) })
    }

    /// A turn beyond the limit.
    pub fn extra_turn(self: &Arc<Self>) -> Turn<B> {
        Turn { host: self.clone(), permit: None }
    }

    /// Waits as long as a request may wait.
    async fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, ConnectError> {
        match self.config.limits.wait_max {
            Some(limit) => timeout(limit, future).await.map_err(|_| self.busy()),
            None => Ok(future.await),
        }
    }

    /// A place among the connections of this server. An idle one gives way. `None` if all are in
    /// use.
    pub fn place(self: &Arc<Self>) -> Option<OpenSlot<B>> {
        let is_full = self.open.load(Ordering::Relaxed) >= self.config.limits.connections_max;
        // The closing connection takes a moment to end, so for that long there is one more.
        (!is_full || self.drop_oldest()).then(|| self.extra_place())
    }

    /// A place beyond the limit.
    pub fn extra_place(self: &Arc<Self>) -> OpenSlot<B> {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.config.open().fetch_add(1, Ordering::Relaxed);
        OpenSlot(self.clone())
    }

    pub(super) fn busy(&self) -> ConnectError {
        ConnectError::Busy { host: self.origin.name().to_owned() }
    }

    /// The time that a connection may be idle.
    pub(super) fn idle_max(&self) -> Duration {
        if self.is_retired() { Duration::ZERO } else { self.config.limits.idle_age_max }
    }

    /// Keeps a connection for the next request, unless there are enough.
    pub(super) fn keep(&self, sender: Sender1<B>) {
        let limits = &self.config.limits;
        let is_enough = |pool: &mut Pool<B>| {
            pool.idle_len() >= limits.idle_max || self.config.idle().load(Ordering::Relaxed) >= limits.idle_total_max
        };
        if !self.is_retired() {
            self.with_pool(|pool| {
                if !is_enough(pool) {
                    pool.put(sender);
                }
            });
            self.freed();
        }
    }

    pub(super) fn drop_oldest(&self) -> bool {
        self.with_pool(Pool::drop_oldest)
    }

    /// Drops connections that are too old. Returns false if no connection is left, so that the
    /// sweeping task ends.
    pub(super) fn drop_old(&self, age_max: Duration) -> bool {
        self.with_pool(|pool| pool.drop_old(age_max));
        let mut swept = self.lock();
        // A connection in use may come back to the pool.
        swept.is_swept = !swept.pool.is_empty() || self.open.load(Ordering::Relaxed) > 0;
        swept.is_swept
    }

    /// Changes the pool, and counts the idle connections of all servers.
    pub(super) fn with_pool<T>(&self, work: impl FnOnce(&mut Pool<B>) -> T) -> T {
        let mut swept = self.lock();
        let before = swept.pool.idle_len();
        let result = work(&mut swept.pool);
        let after = swept.pool.idle_len();
        drop(swept);
        let idle = self.config.idle();
        match after.checked_sub(before) {
            Some(more) => idle.fetch_add(more, Ordering::Relaxed),
            None => idle.fetch_sub(before - after, Ordering::Relaxed),
        };
        result
    }
}

impl<B> Turn<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Takes a connection from the pool, or makes one; the `bool` is true for one from the pool. With `fresh`, a connection of HTTP/1.1 is new,
    /// and one of HTTP/2 was made after that time. With `hosts`, a new connection counts against the limit for all servers.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it lets go of the connection that it had or was making.
    ///
    /// # Errors
    ///
    /// The reason why there is no connection.
    pub async fn line(
        &self,
        hosts: Option<&Hosts<B>>,
        fresh: Option<Instant>,
        only_http1: bool,
    ) -> Result<(Line<B>, bool), ConnectError> {
        let host = &self.host;
        let mut crowd = None;
        loop {
            // Those that came before go first.
            if (crowd.is_some() || host.crowd_len.load(Ordering::Relaxed) == 0)
                && let Some(line) = host.line(hosts, fresh, only_http1).await?
            {
                return Ok(line);
            }
            match &crowd {
                None => {
                    let waiting = Waiting::new(&host.crowd_len);
                    crowd = Some((host.wait(host.crowd.lock()).await?, waiting));
                }
                Some(_) => host.wait(host.freed.acquire()).await?.map_err(|_| host.busy())?.forget(),
            }
            // The next look at the pool sees all that was freed up to here.
            while host.freed.try_acquire().map(|permit| permit.forget()).is_ok() {}
            host.lock().is_crowded = true;
        }
    }
}

impl<B> Host<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Makes a connection for one request, and does not keep it: a check whether the server can be reached.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it ends all attempts.
    ///
    /// # Errors
    ///
    /// The reason why there is no connection.
    pub async fn single(self: &Arc<Self>) -> Result<Line<B>, ConnectError> {
        let opened = self.open(self.extra_place(), false, false).await?;
        Ok(match opened {
            Opened::Http1(sender) => Line(Kind::One(sender)),
            Opened::Http2(sender, streams_max) => Line(Kind::Many(Pool::default().add(sender, streams_max))),
        })
    }

    /// Makes a connection of HTTP/2 that the caller keeps. It counts as open, beyond the limit.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it ends all attempts.
    ///
    /// # Errors
    ///
    /// The reason why there is no connection; [`ConnectError::NotHttp2`] if the server chose
    /// HTTP/1.1.
    pub async fn session(self: &Arc<Self>) -> Result<Session<B>, ConnectError> {
        match self.open(self.extra_place(), false, true).await? {
            Opened::Http2(sender, _) => Ok(Session { sender }),
            Opened::Http1(_) => Err(ConnectError::NotHttp2 { host: self.origin.name().to_owned() }),
        }
    }

    /// As [`Turn::line`]; `None` if there is no room.
    async fn line(
        self: &Arc<Self>,
        hosts: Option<&Hosts<B>>,
        fresh: Option<Instant>,
        only_http1: bool,
    ) -> Result<Option<(Line<B>, bool)>, ConnectError> {
        let may_share = self.origin.scheme != Scheme::Http && !only_http1;
        if let Some(line) = self.kept(may_share, fresh).await {
            return Ok(Some((line, true)));
        }
        let is_shared = may_share && self.spoken.load(Ordering::Relaxed) != HTTP_1;
        let opening = async {
            // Another request may be finding out at this moment, and its connection may serve all.
            let mut alone = if is_shared { Some(self.opening.lock().await) } else { None };
            if is_shared && let Some(line) = self.kept(true, fresh).await {
                return Ok(Some((line, true)));
            }
            // Another request found out meanwhile that each needs a connection of its own, so the next may open one, too.
            if self.spoken.load(Ordering::Relaxed) == HTTP_1 {
                alone = None;
            }
            if let Some(hosts) = hosts {
                hosts.make_room().await.map_err(|()| self.busy())?;
            }
            let Some(place) = self.place() else { return Ok(None) };
            let opened = self.open(place, only_http1, false).await?;
            let line = self.begin(opened, only_http1);
            drop(alone);
            Ok(Some((line, false)))
        };
        let limit = 2 * self.config.dial.limit;
        let late = || ConnectError::TimedOut { host: self.origin.name().to_owned(), limit };
        timeout(limit, opening).await.unwrap_or_else(|_| Err(late()))
    }

    async fn open(
        self: &Arc<Self>,
        place: OpenSlot<B>,
        only_http1: bool,
        pings_idle: bool,
    ) -> Result<Opened<B>, ConnectError> {
        let stream = self.config.dial.connect(&self.origin, only_http1).await?;
        begin(self, stream, place, pings_idle).await
    }

    async fn kept(&self, may_share: bool, fresh: Option<Instant>) -> Option<Line<B>> {
        // A server may be slow to take the rest of the last request. The wait for it has the limit of a new connection.
        let limit = self.config.dial.limit;
        while may_share && let Some(mut stream) = self.with_pool(|pool| pool.share(fresh)) {
            if matches!(timeout(limit, stream.sender.ready()).await, Ok(Ok(()))) {
                return Some(Line(Kind::Many(stream)));
            }
        }
        while fresh.is_none()
            && let Some(mut sender) = self.with_pool(Pool::take)
        {
            if matches!(timeout(limit, sender.ready()).await, Ok(Ok(()))) {
                return Some(Line(Kind::One(sender)));
            }
        }
        None
    }

    /// The first request on a connection that was just made.
    fn begin(self: &Arc<Self>, opened: Opened<B>, only_http1: bool) -> Line<B> {
        let spoken = match &opened {
            _ if only_http1 => UNKNOWN,
            Opened::Http1(_) => HTTP_1,
            Opened::Http2(..) => HTTP_2,
        };
        if spoken != UNKNOWN {
            self.spoken.store(spoken, Ordering::Relaxed);
        }
        // The task starts here and not when a connection comes back, because that may happen
        // without a runtime.
        if !std::mem::replace(&mut self.lock().is_swept, true) {
            self.config.spawn.spawn(sweep(Mark(Arc::downgrade(self))));
        }
        match opened {
            Opened::Http1(sender) => Line(Kind::One(sender)),
            Opened::Http2(sender, streams_max) => {
                Line(Kind::Many(self.with_pool(|pool| pool.add(sender, streams_max))))
            }
        }
    }
}

impl<B> Drop for Host<B> {
    fn drop(&mut self) {
        let idle = self.pool.get_mut().unwrap_or_else(PoisonError::into_inner).pool.idle_len();
        self.config.idle().fetch_sub(idle, Ordering::Relaxed);
    }
}

impl<B> fmt::Debug for Host<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("origin", &self.origin).field("open", &self.open).finish_non_exhaustive()
    }
}

/// Counts a request as waiting until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The values of `Host::spoken`.
const UNKNOWN: u8 = 0;
const HTTP_1: u8 = 1;
const HTTP_2: u8 = 2;
