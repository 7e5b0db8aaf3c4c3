//! The way to the origins: one request over a connection that was kept or is made.
//!
//! ```text
//!   look-up, race of addresses    the color of who asks
//!   idle connections              one color
//!   reading and writing           a color for each connection to an origin
//! ```

mod body;
pub(super) mod check;
mod connect;
mod idle;
mod send;
pub(super) mod sending;
pub(super) mod upload;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dapple::net::TcpStream;
use dapple::time::sleep;
use dapple::{Color, Colored, Handle};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use hyper::client::conn::http1;
use tracing::debug;

use super::args::Waits;
use super::failure::Failure;
use super::hints::Hints;
use super::rules::Rules;
use super::tally::{Count, Place, Tally};
use crate::http::Body;

use self::idle::{Idle, Pool};
use self::upload::Upload;

/// How requests reach their origins.
pub(crate) struct Upstream {
    rules: Rules,
    waits: Waits,
    idle: Colored<Pool>,
    connections_max: usize,
    serial: bool,
    handle: Handle,
    pub(crate) tally: Arc<Tally>,
}

/// Host and port of an origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// In lower case; an address of IPv6 in brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// A request as it goes to an origin.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) origin: Arc<Origin>,
    pub(crate) method: Method,
    pub(crate) target: PathAndQuery,
    pub(crate) headers: HeaderMap,
    /// Where interim responses go, if anywhere.
    pub(crate) hints: Option<Arc<Hints>>,
}

/// A response whose head is there.
pub(crate) struct Answer {
    pub(crate) version: Version,
    pub(crate) status: StatusCode,
    /// Without the fields of the connection, and without what frames the body.
    pub(crate) headers: HeaderMap,
    /// What `content-length` said: also of a body that is not sent.
    pub(crate) content_len: Option<u64>,
    pub(crate) body: Body,
    /// The origin answered before it had all of the request.
    pub(crate) is_early: bool,
}

/// What sends requests on one connection.
type Sender = http1::SendRequest<Upload>;

impl Upstream {
    pub(crate) fn new(
        rules: Rules,
        waits: Waits,
        connections_max: usize,
        serial: bool,
        tally: Arc<Tally>,
        handle: Handle,
    ) -> Upstream {
        let idle = match serial {
            true => Colored::with_color(Pool::default(), &Color::DEFAULT),
            false => Colored::new(Pool::default()),
        };
        Upstream { rules, waits, idle, connections_max, serial, handle, tally }
    }

    /// What may be reached.
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How long servers are waited for.
    pub(crate) fn waits(&self) -> Waits {
        self.waits
    }

    /// Connections that wait for a request.
    pub(crate) async fn idle_len(&self) -> usize {
        self.idle.with(|pool| pool.len()).await
    }

    /// Connects to where a tunnel leads. The second is its place among the connections.
    pub(crate) async fn open(&self, origin: &Origin) -> Result<(TcpStream, Place), Failure> {
        let place = self.place().await?;
        let stream = connect::connect(&self.rules, origin, self.waits.connect).await?;
        self.tally.one(Count::Connects);
        Ok((stream, place))
    }

    /// A place among the connections. Where all are taken, idle ones give theirs up; that takes them a moment.
    async fn place(&self) -> Result<Place, Failure> {
        for _ in 0..PLACE_TRIES {
            if let Some(place) = Place::take(&self.tally, |tally| &tally.upstream, self.connections_max) {
                return Ok(place);
            }
            self.idle.with(Pool::drop_one).await;
            sleep(PLACE_PAUSE).await;
        }
        Err(Failure::Busy)
    }

    /// A connection for requests, one that was kept if there is one. The second says whether it was.
    async fn sender(&self, origin: &Origin, fresh: bool) -> Result<(Sender, bool), Failure> {
        while !fresh && let Some(mut sender) = self.idle.with(|pool| pool.take(origin)).await {
            if sender.ready().await.is_ok() {
                self.tally.one(Count::Reused);
                return Ok((sender, true));
            }
        }
        let (stream, place) = self.open(origin).await?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_MAX).max_headers(FIELDS_MAX);
        let (sender, connection) =
            builder.handshake(stream).await.map_err(|error| Failure::Broken(error.to_string()))?;
        self.spawn(async move {
            let _place = place;
            if let Err(error) = connection.await {
                debug!(%error, "a connection to a server ended");
            }
        });
        Ok((sender, false))
    }

    /// Keeps a connection for the next request.
    fn keep(self: &Arc<Upstream>, origin: Arc<Origin>, sender: Sender) {
        let upstream = self.clone();
        self.idle.post(move |pool| {
            if pool.put(origin, Idle::new(sender)) == idle::Put::First {
                upstream.spawn(idle::sweep(upstream.idle.clone(), upstream.handle.clone()));
            }
        });
    }

    /// Starts a task with a color of its own; with `--serial`, one of the default color.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(match self.serial {
            true => Color::DEFAULT.spawn(task),
            false => self.handle.spawn_balanced(task),
        });
    }

    /// Connections to origins, busy and idle.
    pub(crate) fn open_len(&self) -> usize {
        self.tally.upstream.load(Ordering::Relaxed)
    }
}

impl Origin {
    /// The value of `Host`: without the port that is understood.
    pub(crate) fn authority(&self) -> Result<HeaderValue, Failure> {
        let text = match self.port {
            80 => self.host.clone(),
            port => format!("{}:{port}", self.host),
        };
        HeaderValue::from_str(&text).map_err(|_| Failure::Bad("The host of the request is not well-formed."))
    }
}

/// How often, and after which pause, it is looked for a place among the connections.
const PLACE_TRIES: u32 = 50;
const PLACE_PAUSE: Duration = Duration::from_millis(2);

/// The largest head of a response.
const HEAD_MAX: usize = 64 * 1024;
const FIELDS_MAX: usize = 256;
