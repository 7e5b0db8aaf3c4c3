//! The server, as a mount calls it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dapple::http::{Client, Request};
use dapple::time::{Instant, sleep};
use dapple::tls::TlsConnector;
use dapple_sched::environment::random;
use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use rustix::io::Errno;

use super::MountOptions;
use crate::lease::ClientId;
use crate::lock::lock;
use crate::path::TreePath;
use crate::tree::{Attributes, NodeId};
use crate::wire::{self, Action, Answer, Call, DATA_MAX, PATH, decode, encode};

/// The reason why a tree was not mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The URL is none of a server.
    #[error("{0:?} is no server; write https://HOST:PORT")]
    Url(String),
    /// The password or the token cannot be sent.
    #[error("the token or the password contains characters that cannot be sent")]
    Login,
    /// The client cannot be made.
    #[error("cannot make connections: {0}")]
    Client(#[source] dapple::http::Error),
    /// The server cannot be reached.
    #[error("cannot reach {0}: {1}")]
    Unreachable(String, #[source] dapple::http::Error),
    /// The server answers, but not as a file service.
    #[error("{0} answers with {1}; {advice}", advice = advice(*.1))]
    Refused(String, StatusCode),
    /// The answer makes no sense.
    #[error("{0} does not speak as `dapple files` of this version does")]
    Protocol(String),
    /// The kernel does not mount it.
    #[error(
        "cannot mount ({0}); the directory must exist and be empty, and /dev/fuse and fusermount3 (package fuse3) be there"
    )]
    Mount(#[source] io::Error),
}

fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "the token, the user and password, or the certificate, is wrong or missing",
        StatusCode::TOO_MANY_REQUESTS => "too many wrong logins came from here; wait a minute",
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => "is it `dapple files`?",
        _ => "its log says why",
    }
}

/// The connections of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Most,
    Awaited,
    Waiting,
}

/// The clients that make the connections.
struct Clients {
    most: Client,
    /// A connection of their own for the calls that other clients may wait for: otherwise they would queue behind calls that wait for
    /// other clients.
    awaited: Client,
    /// And one for calls that wait for a lock.
    waiting: Client,
}

impl Clients {
    fn new(tls: Option<&TlsConnector>) -> Result<Clients, MountError> {
        let mut builder = Client::builder()
            .head_timeout(ANSWER_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .tcp_keep_alive(Duration::from_secs(5))
            .redirects_max(0)
            .body_bytes_max(ANSWER_MAX)
            .http2_prior_knowledge(true);
        if let Some(tls) = tls {
            builder = builder.tls(tls.clone());
        }
        let of = |connections| builder.clone().connections_per_host(connections).build().map_err(MountError::Client);
        Ok(Clients { most: of(CONNECTIONS)?, awaited: of(1)?, waiting: of(1)? })
    }
}

/// The numbers of calls.
#[derive(Default)]
struct Numbers {
    last: u64,
    last_change: u64,
    /// Of the changes that are not answered yet.
    changes: BTreeSet<u64>,
}

/// The number of a call, however often it is sent.
pub(super) struct Number<'a> {
    numbers: &'a Mutex<Numbers>,
    number: u64,
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        lock(self.numbers).changes.remove(&self.number);
    }
}

/// The connection to the server.
pub(super) struct Remote {
    clients: Mutex<Clients>,
    url: String,
    server: String,
    login: Option<HeaderValue>,
    id: ClientId,
    numbers: Mutex<Numbers>,
    /// The start of the server's machine, as far as it is known.
    boot: AtomicU64,
    patience: Duration,
}

impl Remote {
    pub(super) fn new(options: &MountOptions) -> Result<Remote, MountError> {
        let server = options.url.trim_end_matches('/').to_owned();
        if !server.starts_with("https://") && !server.starts_with("http://") {
            return Err(MountError::Url(options.url.clone()));
        }
        let login = match (&options.token, &options.login) {
            (Some(token), _) => Some(format!("Bearer {token}")),
            (None, Some((user, password))) => {
                use base64::Engine as _;
                let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
                Some(format!("Basic {text}"))
            }
            (None, None) => None,
        };
        let login = login.map(|login| HeaderValue::from_str(&login)).transpose().map_err(|_| MountError::Login)?;
        Ok(Remote {
            clients: Mutex::new(Clients::new(options.tls.as_ref())?),
            url: format!("{server}{PATH}"),
            server,
            login,
            id: ClientId(u128::from(random()) << 64 | u128::from(random())),
            numbers: Mutex::default(),
            boot: AtomicU64::new(0),
            patience: options.patience,
        })
    }

    /// Makes new connections for the calls from now on.
    pub(super) fn set_tls(&self, tls: Option<&TlsConnector>) -> Result<(), MountError> {
        *lock(&self.clients) = Clients::new(tls)?;
        Ok(())
    }

    fn client(&self, lane: Lane) -> Client {
        let clients = lock(&self.clients);
        match lane {
            Lane::Most => clients.most.clone(),
            Lane::Awaited => clients.awaited.clone(),
            Lane::Waiting => clients.waiting.clone(),
        }
    }

    /// The first call: the start of the service, the duration of its leases, and the attributes of the root.
    pub(super) async fn hello(&self) -> Result<(u64, Duration, Attributes), MountError> {
        let (answer, _) = self.once(Action::Hello).await?;
        let Answer::Hello { start, boot, lease_ms } = answer else {
            return Err(MountError::Protocol(self.server.clone()));
        };
        self.set_boot(boot);
        match self.once(Action::LookUp(TreePath::root())).await? {
            (Answer::Found(root, _), _) => Ok((start, Duration::from_millis(u64::from(lease_ms)), root)),
            (Answer::Failed(_), _) => Err(MountError::Refused(self.server.clone(), StatusCode::FORBIDDEN)),
            _ => Err(MountError::Protocol(self.server.clone())),
        }
    }

    pub(super) fn boot(&self) -> u64 {
        self.boot.load(Ordering::Relaxed)
    }

    pub(super) fn set_boot(&self, boot: u64) {
        self.boot.store(boot, Ordering::Relaxed);
    }

    async fn once(&self, action: Action) -> Result<(Answer, Bytes), MountError> {
        let number = self.number(&action);
        let body = self.body(&number, action, Vec::new(), &[]);
        let body = body.map_err(|_| MountError::Protocol(self.server.clone()))?;
        let end = Instant::now() + self.patience.min(START_PATIENCE);
        loop {
            match self.send(Lane::Most, body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(Sent::Failed(error)) => return Err(MountError::Unreachable(self.server.clone(), error)),
                // Many mounts begin at once.
                Err(Sent::Refused(StatusCode::SERVICE_UNAVAILABLE, after)) if Instant::now() < end => {
                    sleep(after.unwrap_or(PAUSE_MAX)).await;
                }
                Err(Sent::Refused(status, _)) => return Err(MountError::Refused(self.server.clone(), status)),
                Err(Sent::Nonsense) => return Err(MountError::Protocol(self.server.clone())),
            }
        }
    }

    /// Calls the server until it answers; the error is a number of the kernel's.
    pub(super) async fn call(&self, action: Action, data: &[u8]) -> Result<(Answer, Bytes), i32> {
        let number = self.number(&action);
        self.call_as(&number, action, data).await
    }

    /// As [`call`](Self::call), with a number: two calls with the same one are one change.
    pub(super) async fn call_as(
        &self,
        number: &Number<'_>,
        action: Action,
        data: &[u8],
    ) -> Result<(Answer, Bytes), i32> {
        match self.ask_as(number, action, Vec::new(), data, self.patience).await? {
            (Answer::Failed(errno), _) => Err(errno),
            answer => Ok(answer),
        }
    }

    /// As [`call`](Self::call), with leases to give back, and another patience. The call has one number however often it is sent.
    pub(super) async fn ask(
        &self,
        action: Action,
        released: Vec<(NodeId, u64)>,
        data: &[u8],
        patience: Duration,
    ) -> Result<(Answer, Bytes), i32> {
        let number = self.number(&action);
        self.ask_as(&number, action, released, data, patience).await
    }

    /// A number for a call.
    pub(super) fn number(&self, action: &Action) -> Number<'_> {
        let mut numbers = lock(&self.numbers);
        numbers.last += 1;
        let number = numbers.last;
        if action.changes() {
            numbers.changes.insert(number);
            numbers.last_change = number;
        }
        Number { numbers: &self.numbers, number }
    }

    async fn ask_as(
        &self,
        number: &Number<'_>,
        action: Action,
        released: Vec<(NodeId, u64)>,
        data: &[u8],
        patience: Duration,
    ) -> Result<(Answer, Bytes), i32> {
        let lane = action.lane();
        let body = self.body(number, action, released, data)?;
        let end = Instant::now() + patience;
        let mut pause = PAUSE_MIN;
        loop {
            let wait = match self.send(lane, body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(Sent::Failed(error)) => {
                    tracing::debug!(%error, "the server does not answer");
                    pause
                }
                Err(Sent::Refused(status, after)) if is_temporary(status) => after.unwrap_or(pause),
                Err(Sent::Refused(status, _)) => {
                    tracing::warn!(%status, "the server refuses a call");
                    return Err(Errno::ACCESS.raw_os_error());
                }
                Err(Sent::Nonsense) => return Err(Errno::PROTO.raw_os_error()),
            };
            if Instant::now() + wait >= end {
                return Err(Errno::IO.raw_os_error());
            }
            sleep(wait).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    fn body(
        &self,
        number: &Number<'_>,
        action: Action,
        released: Vec<(NodeId, u64)>,
        data: &[u8],
    ) -> Result<Bytes, i32> {
        let oldest = {
            let numbers = lock(&self.numbers);
            numbers.changes.first().copied().unwrap_or(numbers.last_change + 1)
        };
        let call = Call { client: self.id, number: number.number, oldest, released, action };
        encode(&call, data).map_err(|_| Errno::INVAL.raw_os_error())
    }

    async fn send(&self, lane: Lane, body: Bytes) -> Result<(Answer, Bytes), Sent> {
        let mut request = Request::post(&self.url).header(CONTENT_TYPE, wire::CONTENT_TYPE);
        if let Some(login) = &self.login {
            request = request.header(AUTHORIZATION, login);
        }
        let Ok(request) = request.body(body) else { return Err(Sent::Nonsense) };
        let response = self.client(lane).request(request).await.map_err(Sent::Failed)?;
        if response.status() != StatusCode::OK {
            let after = response.headers().get(http::header::RETRY_AFTER);
            let after = after.and_then(|value| value.to_str().ok()?.parse().ok()).map(Duration::from_secs);
            return Err(Sent::Refused(response.status(), after));
        }
        let body = response.bytes().await.map_err(Sent::Failed)?;
        decode(body).ok_or(Sent::Nonsense)
    }
}

impl Action {
    /// Other clients may wait for a call that gives leases back, sends writes that were kept, or unlocks a file.
    fn lane(&self) -> Lane {
        match self {
            Action::AwaitLock { .. } => Lane::Waiting,
            Action::Hello | Action::Recalls { .. } | Action::Unlock { .. } => Lane::Awaited,
            Action::Put { delegation: Some(_), .. } => Lane::Awaited,
            _ => Lane::Most,
        }
    }
}

/// The end of a request without an answer.
enum Sent {
    Failed(dapple::http::Error),
    Refused(StatusCode, Option<Duration>),
    Nonsense,
}

/// Whether the server takes the call later.
fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

/// One connection carries a hundred calls; a second one keeps large reads from delaying small ones.
const CONNECTIONS: usize = 2;

/// An answer may wait for another client's lease, an hour at most.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3700);
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// No answer is longer: neither data nor the page of a directory.
const ANSWER_MAX: usize = 4 * DATA_MAX;

/// How long a mount begins again at a server that has no room for now.
const START_PATIENCE: Duration = Duration::from_secs(60);

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
