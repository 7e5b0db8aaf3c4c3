//! Making a connection, and noticing its end.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use dapple_client::upstream::Message;
use dapple_io::hyper_rt::{Executor, Timer};
use dapple_io::net::TcpStream;
use dapple_io::time::timeout;
use dapple_sync::sync::watch;
use dapple_sync::task::race;
use dapple_tower::{Reason, with_causes};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper::rt::{Read, Write};

use super::link::{Link, State, Up};
use crate::wire::{HEALTH, Outcome, Problem, STOPPING};

/// Makes a connection and puts it in, or what became of it.
pub(super) async fn connect(link: Arc<Link>) {
    // Dropped on the way, by the end of a runtime, it leaves the link as if it had not been.
    let unfinished = Unfinished(&link);
    let number = link.next_number();
    let limit = link.options.connect_timeout;
    let made = match timeout(limit, establish_at_last(&link, number)).await {
        Ok(made) => made,
        Err(_) => Err(format!("no connection within {} ms", limit.as_millis())),
    };
    std::mem::forget(unfinished);
    match made {
        Ok(sender) => {
            let heeding = heed_stopping(
                Arc::downgrade(&link),
                link.state.subscribe(),
                sender.clone(),
                request(&link, STOPPING),
                number,
            );
            link.is_connected(Up { sender, number });
            let _detached = dapple_sched::spawn(heeding);
        }
        Err(why) => link.has_failed(why),
    }
}

struct Unfinished<'a>(&'a Link);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.state.send_replace(State::Idle);
    }
}

/// Who is met by a host that has just begun to end goes to its successor, where there is one, at once.
async fn establish_at_last(link: &Arc<Link>, number: u64) -> Result<SendRequest<Message>, String> {
    for _ in 1..ATTEMPTS_MAX {
        match establish(link, number).await {
            Err(Failure { is_stopping: true, .. }) => {}
            Err(failure) => return Err(failure.why),
            Ok(sender) => return Ok(sender),
        }
    }
    establish(link, number).await.map_err(|failure| failure.why)
}

/// Why there is no connection.
struct Failure {
    why: String,
    is_stopping: bool,
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure { why, is_stopping: false }
    }
}

async fn establish(link: &Arc<Link>, number: u64) -> Result<SendRequest<Message>, Failure> {
    let stream = TcpStream::connect(link.address()).await.map_err(|error| error.to_string())?;
    #[cfg(feature = "tls")]
    if let Some(tls) = &link.options.tls {
        let stream = tls.connect(name_of(&link.authority), stream, link.options.connect_timeout).await;
        return begin(link, stream.map_err(|error| format!("no TLS: {error}"))?, number).await;
    }
    begin(link, stream, number).await
}

/// What a certificate is for: an address without brackets, or a name without the dot that says that it is a full one.
#[cfg(feature = "tls")]
fn name_of(authority: &http::uri::Authority) -> &str {
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host.strip_suffix('.').unwrap_or(host)
}

/// Begins HTTP/2, and asks whether the host takes requests: what was accepted by nobody, and may be reset, carries none.
async fn begin<S>(link: &Arc<Link>, stream: S, number: u64) -> Result<SendRequest<Message>, Failure>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let mut builder = Builder::new(Executor::new());
    builder
        .timer(Timer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_MAX)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .max_header_list_size(HEADERS_LEN_MAX);
    let (mut sender, connection) = builder.handshake(stream).await.map_err(|error| with_causes(&error))?;
    let _detached = dapple_sched::spawn(drive(connection, Arc::downgrade(link), number));
    let asked = sender.send_request(request(link, HEALTH)).await;
    let reply = asked.map_err(|error| format!("it does not answer as a stage host: {}", with_causes(&error)))?;
    match reply.status() {
        StatusCode::OK => Ok(sender),
        status => {
            let body = Limited::new(reply.into_body(), PROBLEM_LEN_MAX).collect().await;
            let bytes = body.map(|body| body.to_bytes()).unwrap_or_default();
            let Ok(problem) = serde_json::from_slice::<Problem>(&bytes) else {
                return Err(format!("it answers {HEALTH} with {status}; is it a stage host?").into());
            };
            let is_stopping = problem.outcome == Outcome::Refused && problem.as_refused().reason == Reason::Stopping;
            Err(Failure { why: problem.message, is_stopping })
        }
    }
}

/// Runs the connection, to its end.
async fn drive<S>(connection: Connection<S, Message, Executor>, link: Weak<Link>, number: u64)
where
    S: Read + Write + Unpin + Send + 'static,
{
    if let Err(error) = connection.await {
        tracing::debug!(error = with_causes(&error), "a connection to a stage host has ended");
    }
    if let Some(link) = link.upgrade() {
        link.retire(number);
    }
}

/// Waits for the host to say that it is about to end. The question stays open as long as the link has this connection.
async fn heed_stopping(
    link: Weak<Link>,
    mut states: watch::Receiver<State>,
    mut sender: SendRequest<Message>,
    request: Request<Message>,
    number: u64,
) {
    let answer = sender.send_request(request);
    // From here on only the link keeps the connection open.
    drop(sender);
    let is_over =
        |state: &State| !matches!(state, State::Connecting) && !matches!(state, State::Up(up) if up.number == number);
    race(answer, async {
        // An error: the link is no more.
        let _ = states.wait_for(is_over).await;
    })
    .await;
    if let Some(link) = link.upgrade() {
        link.retire(number);
    }
}

fn request(link: &Link, path: &str) -> Request<Message> {
    let (empty, _) = Message::new(Bytes::new());
    let mut request = Request::new(empty);
    *request.method_mut() = Method::GET;
    let scheme = if link.is_encrypted() { "https" } else { "http" };
    let uri = http::Uri::builder().scheme(scheme).authority(link.authority.clone()).path_and_query(path);
    *request.uri_mut() = uri.build().expect("the authority was parsed, and the paths are ours");
    request
}

/// A host that has gone without a word is noticed so.
const PING_EVERY: Duration = Duration::from_secs(10);
const PONG_MAX: Duration = Duration::from_secs(10);

/// How often in a row one may come to a host that has just begun to end.
const ATTEMPTS_MAX: u32 = 4;

/// What may be on its way before this side reads it.
const WINDOW: u32 = 256 << 10;
const HEADERS_LEN_MAX: u32 = 16 << 10;

/// What is read of the text of a problem.
pub(crate) const PROBLEM_LEN_MAX: usize = 64 << 10;

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::name_of;

    #[test]
    fn certificates_are_for_names_without_a_dot_at_the_end_and_addresses_without_brackets() {
        for (address, name) in
            [("a.test.:1", "a.test"), ("a.test:1", "a.test"), ("[::1]:1", "::1"), ("10.0.0.1:1", "10.0.0.1")]
        {
            assert_eq!(name_of(&address.parse().unwrap()), name);
        }
    }
}
