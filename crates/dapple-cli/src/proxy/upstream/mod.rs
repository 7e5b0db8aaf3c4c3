//! Sends one request to an origin, over a kept or new connection, if that is allowed.
//!
//! ```text
//!   look-up, race of addresses    the color of the request
//!   reading and writing           a color for each connection to an origin
//! ```

pub(super) mod body;
mod send;
pub(super) mod sending;
pub(super) mod upload;

// Their name server is a resolver's of Dapple.
#[cfg(all(test, feature = "dns"))]
mod tests;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dapple::{Color, Handle};
use dapple_client::upstream::{Config, Dial, Hosts, Limits, OpenSlot, Spawn};
use dapple_client::{ConnectError, Stream};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};

use super::args::Waits;
use super::failure::Failure;
use super::hints::Hints;
use super::rules::Rules;
use super::tally::{Count, Tally};
use crate::http::Body;

pub(crate) use dapple_client::Origin;

use self::upload::Upload;

/// The way to the origins.
pub(crate) struct Upstream {
    rules: Arc<Rules>,
    waits: Waits,
    hosts: Hosts<Upload>,
    pub(crate) tally: Arc<Tally>,
}

/// A request in the form for an origin.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) origin: Arc<Origin>,
    pub(crate) method: Method,
    pub(crate) target: PathAndQuery,
    pub(crate) headers: HeaderMap,
    /// The destination of interim responses, if any.
    pub(crate) hints: Option<Arc<Hints>>,
}

/// A response of which the head has arrived.
pub(crate) struct Answer {
    pub(crate) version: Version,
    pub(crate) status: StatusCode,
    /// Without the fields of the connection, and without the framing of the body.
    pub(crate) headers: HeaderMap,
    /// The value of `content-length`, also for a body that is not sent.
    pub(crate) content_len: Option<u64>,
    pub(crate) body: Body,
    /// Whether the origin answered before it had the whole request.
    pub(crate) is_early: bool,
}

impl Upstream {
    /// Creates an upstream with this many connections to all origins.
    pub(crate) fn new(
        rules: Rules,
        waits: Waits,
        connections_max: usize,
        serial: bool,
        tally: Arc<Tally>,
        handle: Handle,
    ) -> Upstream {
        let rules = Arc::new(rules);
        let judging = rules.clone();
        let may_connect = move |origin: &Origin, addr: SocketAddr| judging.may_connect(&origin.host, addr).is_ok();
        let limits = Limits {
            connections_max,
            total_max: connections_max,
            idle_max: IDLE_MAX,
            idle_total_max: IDLE_TOTAL_MAX,
            idle_age_max: IDLE_AGE_MAX,
            waiting_max: connections_max,
            wait_max: Some(waits.connect),
        };
        let spawn = if serial { Spawn::In(Color::DEFAULT) } else { Spawn::On(handle) };
        let dial = Dial::plain(waits.connect).rule(Arc::new(may_connect));
        Upstream { rules, waits, hosts: Hosts::new(Config::new(dial, limits, spawn)), tally }
    }

    /// The rules about destinations.
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The time limits for servers.
    pub(crate) fn waits(&self) -> Waits {
        self.waits
    }

    /// Connects to the target of a tunnel. The second is its place among the connections.
    pub(crate) async fn open(&self, origin: &Origin) -> Result<(Stream, OpenSlot<Upload>), Failure> {
        let host = self.hosts.get(origin);
        self.hosts.make_room().await.map_err(|_| Failure::Busy)?;
        let place = host.extra_place();
        let stream = self.hosts.config().dial.connect(origin, true).await;
        let stream = stream.map_err(|error| self.unconnected(origin, &error))?;
        self.tally.one(Count::Connects);
        Ok((stream, place))
    }

    /// The number of connections to origins, and of idle ones.
    pub(crate) fn connections(&self) -> (usize, usize) {
        self.hosts.connections()
    }

    /// Starts a task with a color of its own; with `--serial`, of the default color.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.hosts.config().spawn.spawn(task);
    }

    /// The reason why there is no connection.
    fn unconnected(&self, origin: &Origin, error: &ConnectError) -> Failure {
        match error {
            ConnectError::Forbidden(ip) => {
                let judged = self.rules.may_connect(&origin.host, SocketAddr::new(*ip, origin.port));
                judged.map_or_else(|kind| Failure::Refused(*ip, kind), |()| Failure::Unreachable(error.to_string()))
            }
            ConnectError::Unknown { source, .. } => Failure::Unknown(source.to_string()),
            ConnectError::LookupTimedOut { .. } => Failure::LookupTimeout,
            ConnectError::Unreachable { source, .. } => Failure::Unreachable(source.to_string()),
            ConnectError::TimedOut { .. } => Failure::TimedOut("Connecting to the server"),
            ConnectError::Busy { .. } => Failure::Busy,
            ConnectError::Handshake { source, .. } => Failure::Broken(source.to_string()),
            error => Failure::Unreachable(error.to_string()),
        }
    }
}

/// The value of `Host`: without the default port.
pub(crate) fn authority(origin: &Origin) -> Result<HeaderValue, Failure> {
    let text = match origin.port {
        80 => origin.host.clone(),
        port => format!("{}:{port}", origin.host),
    };
    HeaderValue::from_str(&text).map_err(|_| Failure::Bad("The host of the request is not well-formed."))
}

/// The most idle connections to one origin, and in total; more are closed.
const IDLE_MAX: usize = 64;
const IDLE_TOTAL_MAX: usize = 1_024;

/// How long a connection stays idle. Most servers close connections after a minute, some after five
/// seconds.
const IDLE_AGE_MAX: Duration = Duration::from_secs(30);
