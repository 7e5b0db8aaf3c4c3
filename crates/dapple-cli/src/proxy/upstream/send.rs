//! One request and its answer.

use std::sync::Arc;
use std::time::SystemTime;

use dapple::time::timeout;
use http::header::{CONTENT_LENGTH, DATE};
use http::{HeaderValue, Response, Uri};
use hyper::body::{Body as _, Incoming};

use super::body::{Download, Lease};
use super::sending::{Halt, Prepared, Sent, Uploading, go_on, prepare, upload};
use super::{Answer, Outgoing, Upstream, check};
use crate::http::{Body, RequestBody};
use crate::proxy::failure::Failure;
use crate::proxy::fields;
use crate::proxy::tally::Count;

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

    async fn send_or_repeat(
        self: &Arc<Upstream>,
        outgoing: &Outgoing,
        body: &mut RequestBody<'_>,
    ) -> Result<Answer, Failure> {
        let may_repeat = outgoing.method.is_idempotent() && body.len() == Some(0);
        match self.attempt(outgoing, body, false).await {
            Err((Failure::Broken(_), true)) if may_repeat => {
                self.tally.one(Count::Retries);
                self.attempt(outgoing, body, true).await.map_err(|(failure, _)| failure)
            }
            result => result.map_err(|(failure, _)| failure),
        }
    }

    /// The second of an error says whether the connection had been used before.
    async fn attempt(
        self: &Arc<Upstream>,
        outgoing: &Outgoing,
        body: &mut RequestBody<'_>,
        fresh: bool,
    ) -> Result<Answer, (Failure, bool)> {
        let (mut sender, is_kept) = self.sender(&outgoing.origin, fresh).await.map_err(|failure| (failure, false))?;
        let Outgoing { method, target, headers, hints, .. } = outgoing;
        let Prepared { request, pieces, gate } =
            prepare(method, Uri::from(target.clone()), headers, hints.as_ref(), body.len());
        let mut responding = Box::pin(sender.send_request(request));
        // A connection that ends in this very moment may miss the request in its queue, which then is there for as long as its sender is.
        let sender = Some(sender).filter(|sender| !sender.is_closed());
        let pause_max = self.waits.response;
        let uploaded = upload(pause_max, responding.as_mut(), body, pieces, gate).await;
        let (response, upload) = match uploaded.map_err(|halt| (halted(halt), is_kept))? {
            Sent::Early(response, pieces, held) => {
                let upload = match go_on(body, response.status(), pieces, held, pause_max) {
                    Ok((gone, moving)) => {
                        self.spawn(moving);
                        Uploading::On(gone)
                    }
                    Err(pieces) => Uploading::Off(pieces),
                };
                (response, Some(upload))
            }
            Sent::All => {
                let late = Failure::TimedOut("The server's answer");
                let response = timeout(pause_max, responding.as_mut()).await.map_err(|_| (late, is_kept))?;
                (response.map_err(|error| (broken(&error), is_kept))?, None)
            }
        };
        drop(responding);
        let (upstream, origin) = (self.clone(), outgoing.origin.clone());
        let sender = sender.filter(|_| !matches!(upload, Some(Uploading::Off(_))));
        answer(response, Lease { upstream, origin, sender, upload }).map_err(|failure| (failure, is_kept))
    }
}

fn halted(halt: Halt<hyper::Error>) -> Failure {
    match halt {
        Halt::Client(error) => Failure::Client(error.to_string()),
        Halt::Server(error) => broken(&error),
        Halt::Idle | Halt::Stuck => Failure::TimedOut("Sending the body of the request"),
    }
}

fn broken(error: &hyper::Error) -> Failure {
    if error.is_parse() {
        return Failure::Framing("its head is malformed");
    }
    Failure::Broken(error.to_string())
}

/// An answer whose framing is beyond doubt.
fn answer(response: Response<Incoming>, mut lease: Lease) -> Result<Answer, Failure> {
    let (parts, incoming) = response.into_parts();
    let content_len = check::framing(parts.version, parts.status, &parts.headers).map_err(Failure::Framing)?;
    let mut headers = parts.headers;
    fields::strip_but_trailer(&mut headers);
    headers.remove(CONTENT_LENGTH);
    if !headers.contains_key(DATE)
        && let Ok(now) = HeaderValue::from_str(&httpdate::fmt_http_date(SystemTime::now()))
    {
        // Caches further on go by it (RFC 9110, section 6.6.1).
        headers.insert(DATE, now);
    }
    let is_early = matches!(lease.upload, Some(Uploading::Off(_)));
    let body = if incoming.is_end_stream() {
        lease.give_back();
        Body::Empty
    } else {
        Body::Stream(Box::new(Download::new(incoming, lease)))
    };
    Ok(Answer { version: parts.version, status: parts.status, headers, content_len, body, is_early })
}
