//! One request and its answer.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use dapple::sync::{mpsc, oneshot};
use dapple::time::{Instant, sleep, timeout};
use http::header::{CONTENT_LENGTH, DATE, EXPECT};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use hyper::body::{Body as _, Incoming};

use super::body::{Download, Lease};
use super::upload::{Part, Upload};
use super::{Answer, Outgoing, Upstream, check};
use crate::http::{Body, RequestBody};
use crate::proxy::failure::Failure;
use crate::proxy::fields;
use crate::proxy::tally::Count;

type Responding<'a> = Pin<&'a mut (dyn Future<Output = hyper::Result<Response<Incoming>>> + Send)>;
type Pieces = mpsc::Sender<Part>;

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
        let (pieces, request, gate) = prepare(outgoing, body.len());
        let mut responding = Box::pin(sender.send_request(request));
        let uploaded = self.upload(responding.as_mut(), body, pieces, gate).await;
        let (response, upload) = match uploaded.map_err(|failure| (failure, is_kept))? {
            Sent::Early(response, pieces) => (response, Some(pieces)),
            Sent::Answered(response) => (response, None),
            Sent::All => {
                let late = Failure::TimedOut("The server's answer");
                let response = timeout(self.waits.response, responding.as_mut()).await.map_err(|_| (late, is_kept))?;
                (response.map_err(|error| (broken(&error), is_kept))?, None)
            }
        };
        drop(responding);
        let (upstream, origin) = (self.clone(), outgoing.origin.clone());
        let sender = upload.is_none().then_some(sender);
        answer(response, Lease { upstream, origin, sender, upload }).map_err(|failure| (failure, is_kept))
    }

    /// Moves the body from the client to the origin, one piece at a time, until it is sent or the origin has answered. After an error it
    /// need not want the rest; after another answer the rest may come soon, and then the connections can be kept.
    async fn upload(
        &self,
        mut responding: Responding<'_>,
        body: &mut RequestBody<'_>,
        pieces: Option<Pieces>,
        gate: Option<oneshot::Receiver<()>>,
    ) -> Result<Sent, Failure> {
        let Some(pieces) = pieces else { return Ok(Sent::All) };
        if let Some(gate) = gate
            && let Some(response) = until_wanted(responding.as_mut(), gate).await
        {
            return response.map(|response| Sent::Early(response, pieces)).map_err(|error| broken(&error));
        }
        let mut patience = pin!(sleep(self.waits.response));
        let mut answered = None;
        loop {
            if answered.is_none() {
                patience.as_mut().reset(Instant::now() + self.waits.response);
            }
            let event = {
                // Not dropped half-way: it may hold a piece that is neither here nor there.
                let mut moving = pin!(move_piece(body, &pieces));
                loop {
                    let event = poll_fn(|cx| {
                        if let Poll::Ready(moved) = moving.as_mut().poll(cx) {
                            return Poll::Ready(Event::Moved(moved));
                        }
                        if answered.is_none()
                            && let Poll::Ready(response) = responding.as_mut().poll(cx)
                        {
                            return Poll::Ready(Event::Answered(response));
                        }
                        patience.as_mut().poll(cx).map(|()| Event::Stuck)
                    });
                    match event.await {
                        Event::Answered(Ok(response)) if response.status().as_u16() < 400 => {
                            answered = Some(response);
                            patience.as_mut().reset(Instant::now() + REST_MAX);
                        }
                        event => break event,
                    }
                }
            };
            match event {
                Event::Moved(Moved::One) => {}
                Event::Moved(Moved::Failed(error)) => return Err(Failure::Client(error.to_string())),
                // hyper may want no more of it: then the connection is gone, or the answer is there.
                Event::Moved(Moved::All | Moved::Unwanted) => return Ok(answered.map_or(Sent::All, Sent::Answered)),
                Event::Answered(Err(error)) => return Err(broken(&error)),
                Event::Answered(Ok(response)) => return Ok(Sent::Early(response, pieces)),
                Event::Stuck => {
                    let late = Failure::TimedOut("Sending the body of the request");
                    return answered.map(|response| Sent::Early(response, pieces)).ok_or(late);
                }
            }
        }
    }
}

/// How far a request came.
enum Sent {
    /// Without an answer so far.
    All,
    /// The origin answered before it had all, and got all.
    Answered(Response<Incoming>),
    /// The origin answered, and the rest of the body stays where it is.
    Early(Response<Incoming>, Pieces),
}

enum Event {
    Moved(Moved),
    Answered(hyper::Result<Response<Incoming>>),
    Stuck,
}

enum Moved {
    One,
    All,
    Unwanted,
    Failed(io::Error),
}

/// Takes the next piece from the client and puts it where hyper takes it from.
async fn move_piece(body: &mut RequestBody<'_>, pieces: &Pieces) -> Moved {
    match body.next().await {
        None => pieces.send(Part::End).await.map_or(Moved::Unwanted, |()| Moved::All),
        Some(Err(error)) => Moved::Failed(error),
        Some(Ok(piece)) => pieces.send(Part::Piece(piece)).await.map_or(Moved::Unwanted, |()| Moved::One),
    }
}

/// Waits until the origin says `100 Continue`. Who does not know `Expect` says nothing, so the body goes after a while (RFC 9110,
/// section 10.1.1). The response, where there is one instead.
async fn until_wanted(
    mut responding: Responding<'_>,
    gate: oneshot::Receiver<()>,
) -> Option<hyper::Result<Response<Incoming>>> {
    let mut go = pin!(timeout(CONTINUE_MAX, gate));
    let event = poll_fn(|cx| match responding.as_mut().poll(cx) {
        Poll::Ready(response) => Poll::Ready(Some(response)),
        Poll::Pending => go.as_mut().poll(cx).map(|_| None),
    });
    event.await
}

/// The request for hyper, the way into its body, and what tells when that is wanted.
fn prepare(outgoing: &Outgoing, len: Option<u64>) -> (Option<Pieces>, Request<Upload>, Option<oneshot::Receiver<()>>) {
    let (pieces, upload) = match len {
        Some(0) => (None, Upload::empty()),
        len => {
            let (pieces, upload) = Upload::channel(len);
            (Some(pieces), upload)
        }
    };
    let mut request = Request::new(upload);
    *request.method_mut() = outgoing.method.clone();
    *request.uri_mut() = Uri::from(outgoing.target.clone());
    request.headers_mut().clone_from(&outgoing.headers);
    let headers = request.headers_mut();
    let had_len = headers.remove(CONTENT_LENGTH).is_some();
    if let Some(len) = len.filter(|len| *len > 0 || had_len) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    if pieces.is_none() {
        headers.remove(EXPECT);
    }
    let (tx, gate) = headers.contains_key(EXPECT).then(oneshot::channel).unzip();
    if tx.is_some() || outgoing.hints.is_some() {
        let (tx, hints) = (Mutex::new(tx), outgoing.hints.clone());
        hyper::ext::on_informational(&mut request, move |response| {
            if response.status() != StatusCode::CONTINUE {
                if let Some(hints) = &hints {
                    hints.push(response.status(), response.headers());
                }
            } else if let Some(tx) = tx.lock().ok().and_then(|mut tx| tx.take()) {
                // Who gave up waiting has begun already.
                let _ = tx.send(());
            }
        });
    }
    (pieces, request, gate)
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
    fields::strip_response(&mut headers);
    headers.remove(CONTENT_LENGTH);
    if !headers.contains_key(DATE)
        && let Ok(now) = HeaderValue::from_str(&httpdate::fmt_http_date(SystemTime::now()))
    {
        // Caches further on go by it (RFC 9110, section 6.6.1).
        headers.insert(DATE, now);
    }
    let is_early = lease.upload.is_some();
    let body = if incoming.is_end_stream() {
        lease.give_back();
        Body::Empty
    } else {
        Body::Stream(Box::new(Download::new(incoming, lease)))
    };
    Ok(Answer { version: parts.version, status: parts.status, headers, content_len, body, is_early })
}

/// How long the rest of a body may take when the answer is there.
const REST_MAX: Duration = Duration::from_secs(1);

/// How long a client's body waits for `100 Continue`.
const CONTINUE_MAX: Duration = Duration::from_secs(1);
