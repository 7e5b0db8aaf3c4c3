//! A request to a host, and its reply.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dapple_client::upstream::{Message, Taken, Unanswered};
use dapple_io::time::{Instant, timeout_at};
use dapple_stage::RemoteError;
use dapple_sync::task::TraceContext;
use dapple_tower::{BoxError, Reason, Refused, with_causes};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;

use super::encoding::Encoding;
use super::peer::Link;
use super::peer::connect::PROBLEM_LEN_MAX;
use super::wire::{Outcome, Problem, SCHEMA, TIME_LEFT};

/// A request's target, encoding and deadline.
pub(crate) struct Order {
    pub(crate) link: Arc<Link>,
    pub(crate) stage: Arc<str>,
    pub(crate) path: Arc<str>,
    pub(crate) schema: Arc<str>,
    pub(crate) encoding: Encoding,
    pub(crate) until: Option<Instant>,
}

/// Sends a message and awaits the bytes of the reply.
pub(crate) async fn exchange(order: Order, message: Bytes) -> Result<Bytes, BoxError> {
    let len_max = order.link.options.message_len_max;
    if message.len() > len_max {
        let text = format!("{} bytes, and {len_max} is the limit of this side", message.len());
        return Err(RemoteError::TooLarge(text).into());
    }
    let response = order.send(message).await?;
    let reading = order.read(response);
    // The headers have arrived, so the handler has ended, whatever happens to the body.
    match order.in_time(reading).await {
        Some(bytes) => bytes,
        None => Err(order.timed_out(true).into()),
    }
}

impl Order {
    /// Sends the message, once more if the connection ended before it was sent.
    async fn send(&self, message: Bytes) -> Result<Response<Incoming>, BoxError> {
        for _ in 0..ATTEMPTS_MAX {
            let connection = self.in_time(self.link.connection()).await.ok_or_else(|| self.timed_out(false))?;
            let (mut session, number) = connection.map_err(|down| down.error(self.link.address()))?;
            let (request, taken) = self.request(message.clone())?;
            let sending = self.in_time(session.send(request));
            match sending.await {
                None => return Err(self.timed_out(taken.is_taken()).into()),
                Some(Ok(response)) => return Ok(response),
                Some(Err(Unanswered { error, unsent })) => {
                    self.link.retire(number);
                    if unsent.is_none() && taken.is_taken() {
                        return Err(RemoteError::Unknown { peer: self.peer(), why: with_causes(&error) }.into());
                    }
                }
            }
        }
        let why = format!("{ATTEMPTS_MAX} connections ended before the request could be sent");
        Err(RemoteError::Unreachable { peer: self.peer(), why, retry_after: Duration::ZERO }.into())
    }

    fn request(&self, message: Bytes) -> Result<(Request<Message>, Taken), BoxError> {
        let time_left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if time_left.is_some_and(|left| left.is_zero()) {
            return Err(Refused::new(Reason::Deadline, Duration::ZERO).into());
        }
        let len = message.len();
        let (body, taken) = Message::new(message);
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        let uri = Uri::builder()
            .scheme(self.link.scheme())
            .authority(self.link.authority().clone())
            .path_and_query(&*self.path);
        *request.uri_mut() = uri.build().map_err(|error| RemoteError::Malformed(error.to_string()))?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.encoding.media_type()));
        headers.insert(CONTENT_LENGTH, len.into());
        let schema = HeaderValue::from_str(&self.schema).map_err(|error| RemoteError::Malformed(error.to_string()))?;
        headers.insert(SCHEMA, schema);
        if let Some(context) = TraceContext::current() {
            let value = HeaderValue::from_str(&context.to_string());
            headers.insert(TraceContext::HEADER, value.expect("it is of letters and digits"));
        }
        if let Some(left) = time_left {
            // Rounded up, so that the host never drops a request that is still in time.
            let left_ms = u64::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX).min(TIME_LEFT_MS_MAX);
            headers.insert(TIME_LEFT, left_ms.into());
        }
        Ok((request, taken))
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Bytes, BoxError> {
        let status = response.status();
        let Some(outcome) = Outcome::of(response.headers()) else {
            let why = format!("it answered {status} without saying how the request ended; is it a stage host?");
            return Err(RemoteError::Unknown { peer: self.peer(), why }.into());
        };
        let len_max = if outcome == Outcome::Done { self.link.options.message_len_max } else { PROBLEM_LEN_MAX };
        let body = Limited::new(response.into_body(), len_max).collect().await.map(|body| body.to_bytes());
        if outcome == Outcome::Done {
            return body.map_err(|error| match error.is::<LengthLimitError>() {
                true => RemoteError::Reply(format!("it has more than {len_max} bytes, the limit of this side")).into(),
                false => RemoteError::Reply(format!("the connection ended in it: {}", with_causes(&*error))).into(),
            });
        }
        // The header has the outcome; a truncated text is no loss.
        let problem = body.ok().and_then(|body| serde_json::from_slice::<Problem>(&body).ok());
        Err(self.error(problem.unwrap_or_else(|| Problem::new(outcome, status.to_string())), outcome))
    }

    fn error(&self, problem: Problem, outcome: Outcome) -> BoxError {
        let (peer, stage) = (self.peer(), self.stage.to_string());
        let message = problem.message.clone();
        let error = match outcome {
            Outcome::Refused => return problem.as_refused().into(),
            Outcome::Done => RemoteError::Reply(message),
            Outcome::Failed => RemoteError::Failed(message),
            Outcome::Panicked => RemoteError::Panicked(message),
            Outcome::TimedOut => RemoteError::TimedOut { peer, sent: true },
            Outcome::NotFound => RemoteError::NoStage { peer, stage, message },
            Outcome::Mismatch => RemoteError::Mismatch { peer, stage, message },
            Outcome::Malformed => RemoteError::Malformed(message),
            Outcome::TooLarge => RemoteError::TooLarge(message),
        };
        error.into()
    }

    /// Returns the future's output, unless the time is over first.
    async fn in_time<F: Future>(&self, future: F) -> Option<F::Output> {
        match self.until {
            Some(until) => timeout_at(until, future).await.ok(),
            None => Some(future.await),
        }
    }

    fn timed_out(&self, sent: bool) -> RemoteError {
        RemoteError::TimedOut { peer: self.peer(), sent }
    }

    fn peer(&self) -> String {
        self.link.address().to_owned()
    }
}

/// How often a request is sent if its connection ended before.
const ATTEMPTS_MAX: u32 = 3;

/// Twelve digits, some thirty years.
const TIME_LEFT_MS_MAX: u64 = 999_999_999_999;
