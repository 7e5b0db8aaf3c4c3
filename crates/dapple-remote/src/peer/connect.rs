//! Making a connection, and noticing its end.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use dapple_client::upstream::{Message, Session};
use dapple_io::time::timeout;
use dapple_sync::sync::watch;
use dapple_sync::task::race;
use dapple_tower::{Reason, with_causes};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};

use super::link::{Link, State, Up};
use crate::wire::{HEALTH, Outcome, Problem, STOPPING};

/// Makes a connection and puts it into the link, or else the reason why there is none.
pub(super) async fn connect(link: Arc<Link>) {
    // If the end of a runtime drops the attempt, the link is as it was before.
    let unfinished = Unfinished(&link);
    let limit = link.options.connect_timeout;
    let made = match timeout(limit, establish_at_last(&link)).await {
        Ok(made) => made,
        Err(_) => Err(format!("no connection within {} ms", limit.as_millis())),
    };
    std::mem::forget(unfinished);
    match made {
        Ok(session) => {
            let number = link.next_number();
            let heeding = heed_stopping(
                Arc::downgrade(&link),
                link.state.subscribe(),
                session.clone(),
                request(&link, STOPPING),
                number,
            );
            link.is_connected(Up { session, number });
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

/// A host that has just begun to end may have a successor, so the next attempt follows at once.
async fn establish_at_last(link: &Link) -> Result<Session<Message>, String> {
    for _ in 1..ATTEMPTS_MAX {
        match establish(link).await {
            Err(Failure { is_stopping: true, .. }) => {}
            Err(failure) => return Err(failure.why),
            Ok(session) => return Ok(session),
        }
    }
    establish(link).await.map_err(|failure| failure.why)
}

/// The reason why there is no connection.
struct Failure {
    why: String,
    is_stopping: bool,
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure { why, is_stopping: false }
    }
}

/// Makes a connection, and asks whether the host takes requests. The connection carries none
/// before, because the kernel may reset one that no process has accepted yet.
async fn establish(link: &Link) -> Result<Session<Message>, Failure> {
    let mut session = link.host.session().await.map_err(|error| error.to_string())?;
    let reply = session
        .send(request(link, HEALTH))
        .await
        .map_err(|unanswered| format!("it does not answer as a stage host: {}", with_causes(&unanswered.error)))?;
    match reply.status() {
        StatusCode::OK => Ok(session),
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

/// Waits for the host to say that it is about to end. The question stays open for as long as the
/// link has this connection.
async fn heed_stopping(
    link: Weak<Link>,
    mut states: watch::Receiver<State>,
    mut session: Session<Message>,
    request: Request<Message>,
    number: u64,
) {
    let answer = session.send(request);
    // From here on only the link keeps the connection open.
    drop(session);
    let is_over =
        |state: &State| !matches!(state, State::Connecting) && !matches!(state, State::Up(up) if up.number == number);
    race(answer, async {
        // An error means that the link is gone.
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
    let uri = http::Uri::builder().scheme(link.scheme()).authority(link.authority.clone()).path_and_query(path);
    *request.uri_mut() = uri.build().expect("the authority was parsed, and the paths are ours");
    request
}

/// Attempts in a row at a host that has just begun to end.
const ATTEMPTS_MAX: u32 = 4;

/// The most bytes read of the text of a problem.
pub(crate) const PROBLEM_LEN_MAX: usize = 64 << 10;
