//! One call: attempts at one member after the other, within a deadline.
//!
//! | an attempt ends with | a read, a guarded write | a plain write |
//! |---|---|---|
//! | a reply | done | done |
//! | a refusal | done | done |
//! | surely nothing was applied (no connection, no leader, overload) | the next member | the next member |
//! | perhaps it was applied (the connection ended, the time of the attempt is over) | the next member | `Unknown` |
//! | a token that is no longer valid | a new token, the next member | a new token, the next member |
//!
//! A member that fails is out at once, and comes back by one request as its trial after 50 ms to 2
//! s ([`Balancer`]). So an outage costs a member a few requests a second, however many callers
//! there are, and no budget of retries is needed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dapple_client::upstream::{Message, Taken};
use dapple_client::{Body, Client, ConnectError, Request, Response};
use dapple_io::time::{Instant, timeout_at};
use dapple_tower::Backoff;
use dapple_tower::balance::{Balancer, Config, Outcome, Picked, ReplicaState};
use http::HeaderValue;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answer::Failure;
use crate::auth::Auth;
use crate::error::{Error, Reason};

/// The choice after an attempt with an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Safety {
    /// Again: it changes nothing.
    Read,
    /// Again: its guard keeps it from happening twice, and the caller checks whether it has
    /// happened.
    Guarded,
    /// Nothing.
    Plain,
}

/// The members, and the connections to them.
pub(crate) struct Inner {
    members: Balancer<Arc<str>, ()>,
    /// For calls.
    http: Client,
    /// For streams, each of which has a connection of HTTP/1.1 for itself.
    streams: Client,
    pub(crate) auth: Option<Auth>,
}

/// A reply, and whether an earlier attempt of the same call may have been applied, too.
pub(crate) struct Replied<A> {
    pub(crate) reply: A,
    pub(crate) is_repeated: bool,
}

/// One question.
pub(crate) struct Call {
    pub(crate) path: &'static str,
    pub(crate) body: Bytes,
    pub(crate) safety: Safety,
    pub(crate) deadline: Instant,
    /// A member without a leader refuses at once.
    pub(crate) needs_leader: bool,
    pub(crate) needs_token: bool,
}

impl Call {
    pub(crate) fn new(path: &'static str, question: &impl Serialize, safety: Safety, deadline: Instant) -> Call {
        let body = serde_json::to_vec(question).expect("our questions are JSON").into();
        Call { path, body, safety, deadline, needs_leader: true, needs_token: true }
    }
}

/// The part of a reply that is read at once.
#[derive(Clone, Copy)]
enum Want {
    Whole,
    Stream,
}

enum Got {
    Whole(Bytes),
    Stream(Box<Response>),
}

type Member = Picked<Arc<str>, ()>;

impl Inner {
    pub(crate) fn new(endpoints: Vec<String>, http: Client, streams: Client, auth: Option<Auth>) -> Inner {
        let mut config = Config::default();
        config.failures_max = 1;
        config.backoff = Backoff::new(OUT_MIN, OUT_MAX);
        let members = Balancer::new(config);
        members.set(endpoints.into_iter().map(|endpoint| (endpoint.into(), ())));
        Inner { members, http, streams, auth }
    }

    /// The members, and whether each is in service.
    pub(crate) fn members(&self) -> Vec<(Arc<str>, ReplicaState)> {
        self.members.stats().into_iter().map(|stats| (stats.key, stats.state)).collect()
    }

    /// Asks, and reads the whole reply.
    pub(crate) async fn ask<A: DeserializeOwned>(&self, call: Call) -> Result<Replied<A>, Error> {
        let (response, is_repeated) = self.members_in_turn(&call, Want::Whole).await?;
        let Got::Whole(bytes) = response else { unreachable!("the request was for a whole reply") };
        match serde_json::from_slice(&bytes) {
            Ok(reply) => Ok(Replied { reply, is_repeated }),
            Err(error) if call.safety == Safety::Read => {
                Err(Error::not_applied(Reason::Malformed, format!("the reply makes no sense: {error}")))
            }
            Err(error) => Err(Error::Unknown { message: format!("the reply makes no sense: {error}") }),
        }
    }

    /// Sends a request for a stream.
    pub(crate) async fn open(&self, call: Call) -> Result<Response, Error> {
        let (response, _) = self.members_in_turn(&call, Want::Stream).await?;
        let Got::Stream(response) = response else { unreachable!("the request was for a stream") };
        Ok(*response)
    }

    /// Makes attempts until one has a result for the caller. The `bool`: an attempt before may have been applied.
    async fn members_in_turn(&self, call: &Call, want: Want) -> Result<(Got, bool), Error> {
        let mut over = Over { is_repeated: false, why: "no member is in service".to_owned() };
        let (mut asked, mut tokens, mut patience) = (Vec::new(), 0, ATTEMPT_FIRST);
        loop {
            let token = match &self.auth {
                Some(auth) if call.needs_token => match auth.token(self, call.deadline).await {
                    Ok(token) => token,
                    Err(error) => return Err(over.refused(error)),
                },
                _ => None,
            };
            let Ok(mut member) = timeout_at(call.deadline, self.member(&mut asked)).await else {
                return Err(over.error());
            };
            let now = Instant::now();
            let rest = call.deadline.saturating_duration_since(now);
            // A plain write has one attempt, as far as it was sent.
            let until = match call.safety {
                Safety::Plain => call.deadline,
                Safety::Read | Safety::Guarded => call.deadline.min(now + (rest / 2).clamp(ATTEMPT_MIN, patience)),
            };
            patience = patience.saturating_mul(2);
            let (message, taken) = Message::new(call.body.clone());
            let attempt = self.attempt(call, want, member.key(), token.clone(), message);
            let failure = match timeout_at(until, attempt).await {
                Ok(Ok(got)) => {
                    member.report(Outcome::Success);
                    return Ok((got, over.is_repeated));
                }
                Ok(Err(failure)) => failure,
                Err(_) => Failure::open(format!("no answer within {} ms", (until - now).as_millis())),
            };
            let failure = failure.of_message(&taken);
            match failure {
                Failure::Final(error) => {
                    member.report(Outcome::Success);
                    return Err(over.refused(error));
                }
                Failure::Token(why) => {
                    member.report(Outcome::Success);
                    let Some(auth) = self.auth.as_ref().filter(|_| tokens < TOKENS_MAX && call.needs_token) else {
                        return Err(over.refused(Error::not_applied(Reason::Denied, why)));
                    };
                    auth.forget(token.as_ref());
                    // The member is as good as any other.
                    asked.clear();
                    tokens += 1;
                }
                Failure::Busy => {
                    let message = format!("too many calls wait for a connection to {}", member.key());
                    return Err(over.refused(Error::Unavailable { message, retry_after: OUT_MIN }));
                }
                Failure::Elsewhere { why, is_open } => {
                    member.report(Outcome::Failure);
                    over.why = format!("{}: {why}", member.key());
                    over.is_repeated |= is_open && call.safety != Safety::Read;
                    if is_open && call.safety == Safety::Plain {
                        return Err(over.error());
                    }
                }
            }
            if Instant::now() >= call.deadline {
                return Err(over.error());
            }
        }
    }

    /// A member in service that this call has not tried in this round; waits if there is none.
    async fn member(&self, asked: &mut Vec<Arc<str>>) -> Member {
        let member = match self.members.pick_other_than(asked) {
            Ok(member) => member,
            Err(_) => self.members.wait().await,
        };
        if asked.contains(member.key()) {
            asked.clear();
        }
        asked.push(member.key().clone());
        member
    }

    async fn attempt(
        &self,
        call: &Call,
        want: Want,
        endpoint: &str,
        token: Option<HeaderValue>,
        message: Message,
    ) -> Result<Got, Failure> {
        match want {
            Want::Stream => Ok(Got::Stream(Box::new(self.send(&self.streams, call, endpoint, token, message).await?))),
            Want::Whole => {
                let response = self.send(&self.http, call, endpoint, token, message).await?;
                Ok(Got::Whole(response.bytes().await.map_err(|error| read_failed(call.safety, error))?))
            }
        }
    }

    /// Sends the request, and awaits the head of a good response.
    async fn send(
        &self,
        client: &Client,
        call: &Call,
        endpoint: &str,
        token: Option<HeaderValue>,
        message: Message,
    ) -> Result<Response, Failure> {
        let mut request = Request::post(format!("{endpoint}{}", call.path)).header(CONTENT_TYPE, "application/json");
        // The gateway does not compress.
        request = request.header(ACCEPT_ENCODING, "identity");
        if call.needs_leader {
            request = request.header("grpc-metadata-hasleader", "true");
        }
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Body::new(message)).map_err(|error| Failure::unsent(error.to_string()))?;
        let response = client.request(request).await.map_err(unanswered)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.bytes().await.unwrap_or_default();
        Err(Failure::of_answer(status, &body))
    }
}

impl Failure {
    /// A message that was never taken was not applied.
    fn of_message(self, taken: &Taken) -> Failure {
        match self {
            Failure::Elsewhere { why, is_open } => Failure::Elsewhere { why, is_open: is_open && taken.is_taken() },
            failure => failure,
        }
    }
}

fn unanswered(error: dapple_client::Error) -> Failure {
    use dapple_client::Error::{Connect, Unsupported, Url};
    match &error {
        Connect(ConnectError::Busy { .. }) => Failure::Busy,
        Connect(_) | Url { .. } | Unsupported(_) => Failure::unsent(error.to_string()),
        _ => Failure::open(error.to_string()),
    }
}

fn read_failed(safety: Safety, error: dapple_client::Error) -> Failure {
    match error {
        dapple_client::Error::BodyTooLarge { .. } if safety == Safety::Read => {
            Failure::Final(Error::not_applied(Reason::TooLarge, format!("{error}; read with a limit")))
        }
        error => Failure::open(error.to_string()),
    }
}

/// The knowledge about a call when its attempts are over.
struct Over {
    /// An attempt to write may have been applied.
    is_repeated: bool,
    why: String,
}

impl Over {
    /// The last attempt was refused; those before may have been applied.
    fn refused(self, error: Error) -> Error {
        match self.is_repeated {
            true => Error::Unknown { message: error.message().to_owned() },
            false => error,
        }
    }

    fn error(self) -> Error {
        match self.is_repeated {
            true => Error::Unknown { message: self.why },
            false => Error::Unavailable { message: self.why, retry_after: OUT_MIN },
        }
    }
}

/// How long a member is out that has failed.
const OUT_MIN: Duration = Duration::from_millis(50);
const OUT_MAX: Duration = Duration::from_secs(2);

/// An attempt has half of the time that is left; this at least, and the first one at most [`ATTEMPT_FIRST`], each further one twice as much: a
/// member that hangs costs little, and a reply that takes long arrives in the end.
const ATTEMPT_MIN: Duration = Duration::from_millis(500);
const ATTEMPT_FIRST: Duration = Duration::from_secs(1);

/// New tokens for one call.
const TOKENS_MAX: u32 = 3;
