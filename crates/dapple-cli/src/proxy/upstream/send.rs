//! One request and its answer.

use std::sync::Arc;

use dapple::time::Instant;
use dapple_client::upstream::Unanswered;
use http::Uri;

use super::body::{Held, passing};
use super::sending::{Delivered, Halt, deliver, passed_on, prepare};
use super::upload::Upload;
use super::{Answer, Outgoing, Upstream};
use crate::http::RequestBody;
use crate::proxy::failure::Failure;
use crate::proxy::tally::{Count, Tally};

/// The reason why an attempt failed.
struct Missed {
    failure: Failure,
    /// When the connection was ready, if it had been used before.
    kept: Option<Instant>,
}

impl Upstream {
    /// Sends a request with its client's body, and returns the answer once its head has arrived.
    ///
    /// The origin may have closed a kept connection at this moment. So a request that may be
    /// repeated and has no body is sent once more on a fresh connection (RFC 9112, section 9.3.1).
    ///
    /// # Errors
    ///
    /// The reason why there is no answer.
    pub(crate) async fn send(
        self: &Arc<Upstream>,
        outgoing: &Outgoing,
        body: &mut RequestBody<'_>,
    ) -> Result<Answer, Failure> {
        let result = self.send_or_repeat(outgoing, body).await;
        // A forbidden destination, or a request that its client cancelled, is no failure of a
        // server.
        if let Err(failure) = &result
            && !matches!(failure, Failure::Refused(..) | Failure::Client(_))
        {
            self.tally.one(Count::FetchesFailed);
        }
        result
    }

    async fn send_or_repeat(&self, outgoing: &Outgoing, body: &mut RequestBody<'_>) -> Result<Answer, Failure> {
        let may_repeat = outgoing.method.is_idempotent() && body.len() == Some(0);
        match self.attempt(outgoing, body, None).await {
            Err(Missed { failure: Failure::Broken(_), kept: Some(begun) }) if may_repeat => {
                self.tally.one(Count::Retries);
                self.attempt(outgoing, body, Some(begun)).await.map_err(|missed| missed.failure)
            }
            result => result.map_err(|missed| missed.failure),
        }
    }

    async fn attempt(
        &self,
        outgoing: &Outgoing,
        body: &mut RequestBody<'_>,
        fresh: Option<Instant>,
    ) -> Result<Answer, Missed> {
        let Outgoing { origin, method, target, headers, hints } = outgoing;
        let unconnected = |error| Missed { failure: self.unconnected(origin, &error), kept: None };
        let turn = self.hosts.get(origin).turn().await.map_err(unconnected)?;
        let (line, is_kept) = turn.line(Some(&self.hosts), fresh, true).await.map_err(unconnected)?;
        self.tally.one(if is_kept { Count::Reused } else { Count::Connects });
        let kept = is_kept.then(Instant::now);
        let missed = |failure| Missed { failure, kept };
        let prepared = prepare(method, Uri::from(target.clone()), headers, hints.as_ref(), body.len());
        let delivered = deliver(line, turn, prepared, body, self.waits.response, &self.hosts.config().spawn).await;
        let Delivered { response, lease, upload } = delivered.map_err(|halt| missed(halted(halt)))?;
        let (head, incoming) = response.into_parts();
        let (head, content_len) = passed_on(head).map_err(|why| missed(Failure::Framing(why)))?;
        let is_early = upload.is_some();
        let body = passing(incoming, lease, upload, self.waits, Counted(self.tally.clone()));
        let http::response::Parts { version, status, headers, .. } = head;
        Ok(Answer { version, status, headers, content_len, body, is_early })
    }
}

/// Counts arriving bytes.
struct Counted(Arc<Tally>);

impl Held for Counted {
    fn received(&self, len: u64) {
        self.0.add(Count::BytesFromOrigins, len);
    }

    fn complete(&mut self) {}
}

fn halted(halt: Halt) -> Failure {
    match halt {
        Halt::Client(error) => Failure::Client(error.to_string()),
        Halt::Server(unanswered) => broken(&unanswered),
        Halt::Idle | Halt::Stuck => Failure::TimedOut("Sending the body of the request"),
        Halt::Late => Failure::TimedOut("The server's answer"),
    }
}

fn broken(unanswered: &Unanswered<Upload>) -> Failure {
    if unanswered.error.is_parse() {
        return Failure::Framing("its head is malformed");
    }
    Failure::Broken(unanswered.error.to_string())
}
