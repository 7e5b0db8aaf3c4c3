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

/// Why an attempt came to nothing.
struct Missed {
    failure: Failure,
    /// The connection had been used before, and there was one at this time.
    kept: Option<Instant>,
}

impl Upstream {
    /// Sends a request with what its client sends as the body, and gives the answer once its head is there.
    ///
    /// A connection that was kept may have been closed by the origin in this very moment. So where the request may be made twice
    /// and has no body, it is made once more on a fresh one (RFC 9112, section 9.3.1).
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub(crate) async fn send(
        self: &Arc<Upstream>,
        outgoing: &Outgoing,
        body: &mut RequestBody<'_>,
    ) -> Result<Answer, Failure> {
        let result = self.send_or_repeat(outgoing, body).await;
        // What may not be reached, and what its client gave up, was no server's failure.
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

/// Counts what comes.
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
