//! Sends a request to a server over any connection: moves its body piece by piece, and watches for
//! the answer meanwhile.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use dapple::sync::{mpsc, oneshot};
use dapple::time::{Instant, sleep, timeout};
use dapple_client::upstream::{Gone, Lease, Line, Spawn, Turn, Unanswered};
use dapple_http::framing::framing;
use http::header::{CONTENT_LENGTH, DATE, EXPECT};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;

use super::upload::{Part, Upload};
use crate::http::RequestBody;
use crate::proxy::fields;
use crate::proxy::hints::Hints;

/// hyper's future of a response.
type Responding<'a> = Pin<&'a mut (dyn Future<Output = Result<Response<Incoming>, Unanswered<Upload>>> + Send)>;

/// The sending end of a body's channel.
pub(in crate::proxy) type Pieces = mpsc::Sender<Part>;

/// A request for hyper, and its body's channel.
pub(in crate::proxy) struct Prepared {
    pub(in crate::proxy) request: Request<Upload>,
    /// The sending end of its body; `None` if it has none.
    pub(in crate::proxy) pieces: Option<Pieces>,
    /// Resolves when hyper wants the body.
    pub(in crate::proxy) gate: Option<oneshot::Receiver<()>>,
}

/// A response, and the rest of the upload.
pub(in crate::proxy) struct Delivered {
    pub(in crate::proxy) response: Response<Incoming>,
    pub(in crate::proxy) lease: Lease<Upload>,
    /// Set if the server answered before it had the whole body, and the rest stays unsent. Hold it
    /// so that the body does not end before its stated length while the response arrives.
    pub(in crate::proxy) upload: Option<Pieces>,
}

/// How far a request got.
enum Sent {
    /// Everything was sent, and there is no answer yet.
    All,
    /// The server answered early. These bytes have been read and not sent; the rest of the body
    /// follows them.
    Early(Response<Incoming>, Pieces, Option<Bytes>),
}

/// The reason why a request was not sent completely.
pub(in crate::proxy) enum Halt {
    /// The client cancelled it, or broke the rules.
    Client(io::Error),
    /// The server, or the connection to it, failed.
    Server(Unanswered<Upload>),
    /// The client sent nothing for too long.
    Idle,
    /// The server took nothing for too long.
    Stuck,
    /// The server had the whole request, and did not answer in time.
    Late,
}

/// The request for hyper, the sending end of its body, and the signal that the body is wanted.
pub(in crate::proxy) fn prepare(
    method: &Method,
    uri: Uri,
    headers: &HeaderMap,
    hints: Option<&Arc<Hints>>,
    len: Option<u64>,
) -> Prepared {
    let (pieces, upload) = match len {
        Some(0) => (None, Upload::empty()),
        len => {
            let (pieces, upload) = Upload::channel(len);
            (Some(pieces), upload)
        }
    };
    let mut request = Request::new(upload);
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri;
    request.headers_mut().clone_from(headers);
    let headers = request.headers_mut();
    let had_len = headers.remove(CONTENT_LENGTH).is_some();
    if let Some(len) = len.filter(|len| *len > 0 || had_len) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    if pieces.is_none() {
        headers.remove(EXPECT);
    }
    let (tx, gate) = headers.contains_key(EXPECT).then(oneshot::channel).unzip();
    if tx.is_some() || hints.is_some() {
        let (tx, hints) = (Mutex::new(tx), hints.cloned());
        hyper::ext::on_informational(&mut request, move |response| {
            if response.status() != StatusCode::CONTINUE {
                if let Some(hints) = &hints {
                    hints.push(response.status(), response.headers());
                }
            } else if let Some(tx) = tx.lock().ok().and_then(|mut tx| tx.take()) {
                // A receiver that stopped waiting has already begun.
                let _ = tx.send(());
            }
        });
    }
    Prepared { request, pieces, gate }
}

/// Sends a request on this line, and resolves to its response once the head has arrived. If the
/// server answered early, a task moves the rest of the body while the response arrives, until
/// either side ends it; after an error the rest stays unsent, because the server need not want it.
/// No pause may be longer than `pause_max`; the client's own connection limits how slow it may be
/// while its response arrives.
pub(in crate::proxy) async fn deliver(
    line: Line<Upload>,
    turn: Turn<Upload>,
    prepared: Prepared,
    body: &mut RequestBody<'_>,
    pause_max: Duration,
    spawn: &Spawn,
) -> Result<Delivered, Halt> {
    let Prepared { request, pieces, gate } = prepared;
    let (mut responding, mut lease) = line.send(request, turn);
    let (response, upload) = match upload(pause_max, responding.as_mut(), body, pieces, gate).await? {
        Sent::Early(response, pieces, held) => {
            let rest = if response.status().as_u16() < 400 { body.detach() } else { None };
            let upload = match rest {
                Some(rest) => {
                    let gone = Gone::default();
                    lease.keep_once(gone.clone());
                    spawn.spawn(move_rest(rest, pieces, held, pause_max, gone));
                    None
                }
                None => {
                    lease.do_not_keep();
                    Some(pieces)
                }
            };
            (response, upload)
        }
        Sent::All => {
            let response = timeout(pause_max, responding.as_mut()).await.map_err(|_| Halt::Late)?;
            (response.map_err(Halt::Server)?, None)
        }
    };
    Ok(Delivered { response, lease, upload })
}

/// The head of a response as it is passed on, and the stated length of its body.
///
/// # Errors
///
/// The reason why its framing cannot be trusted.
pub(in crate::proxy) fn passed_on(head: Parts) -> Result<(Parts, Option<u64>), &'static str> {
    let mut head = head;
    let content_len = framing(head.version, head.status, &head.headers)?;
    fields::strip_but_trailer(&mut head.headers);
    head.headers.remove(CONTENT_LENGTH);
    if !head.headers.contains_key(DATE)
        && let Ok(now) = HeaderValue::from_str(&httpdate::fmt_http_date(SystemTime::now()))
    {
        // Later caches rely on it (RFC 9110, section 6.6.1).
        head.headers.insert(DATE, now);
    }
    Ok((head, content_len))
}

/// Moves the body from the client to the server, one piece at a time, until it is sent or the
/// server has answered. No pause may be longer than `pause_max`.
async fn upload(
    pause_max: Duration,
    mut responding: Responding<'_>,
    body: &mut RequestBody<'_>,
    pieces: Option<Pieces>,
    gate: Option<oneshot::Receiver<()>>,
) -> Result<Sent, Halt> {
    let Some(pieces) = pieces else { return Ok(Sent::All) };
    if let Some(gate) = gate
        && let Some(response) = until_wanted(responding.as_mut(), gate).await
    {
        return response.map(|response| Sent::Early(response, pieces, None)).map_err(Halt::Server);
    }
    let mut patience = pin!(sleep(pause_max));
    let mut held = None;
    loop {
        patience.as_mut().reset(Instant::now() + pause_max);
        let event = {
            let mut moving = pin!(move_piece(body, &pieces, &mut held));
            poll_fn(|cx| {
                if let Poll::Ready(moved) = moving.as_mut().poll(cx) {
                    return Poll::Ready(Event::Moved(moved));
                }
                if let Poll::Ready(response) = responding.as_mut().poll(cx) {
                    return Poll::Ready(Event::Answered(response));
                }
                patience.as_mut().poll(cx).map(|()| Event::Stuck)
            })
            .await
        };
        match event {
            Event::Moved(Moved::One) => {}
            Event::Moved(Moved::Failed(error)) => return Err(Halt::Client(error)),
            // hyper may not take any more of it: then the connection has ended, or the answer has
            // arrived.
            Event::Moved(Moved::All | Moved::Unwanted) => return Ok(Sent::All),
            Event::Answered(Err(error)) => return Err(Halt::Server(error)),
            Event::Answered(Ok(response)) => return Ok(Sent::Early(response, pieces, held)),
            // If a piece is held, the server is the one that stalls.
            Event::Stuck => return Err(if held.is_some() { Halt::Stuck } else { Halt::Idle }),
        }
    }
}

/// Moves the rest of a body while the response arrives. Until that upload is over, the client's own
/// connection limits how slow the client may be; afterwards the wait is at most `pause_max`.
async fn move_rest(
    mut body: Box<dyn crate::http::Incoming + Send + Sync>,
    pieces: Pieces,
    held: Option<Bytes>,
    pause_max: Duration,
    gone: Gone,
) {
    let mut next = held.map(Ok);
    loop {
        let piece = match next.take() {
            Some(piece) => Some(piece),
            None => match timeout(pause_max, poll_fn(|cx| body.poll_next(cx))).await {
                Ok(piece) => piece,
                // Otherwise a silent client would keep the connection to the server open as long as
                // its own.
                Err(_) if gone.is_alone() => return,
                Err(_) => continue,
            },
        };
        let part = match piece {
            Some(Ok(piece)) => Part::Piece(piece),
            None => Part::End(body.trailers().and_then(fields::trailers)),
            // Without its end the request cannot look complete.
            Some(Err(_)) => return,
        };
        let is_end = matches!(part, Part::End(_));
        let is_sent = matches!(timeout(pause_max, pieces.send(part)).await, Ok(Ok(())));
        if is_end {
            // hyper takes the end when it has room for it; if the length was stated, it does not
            // take the end. A lost connection is not kept anyway.
            if timeout(pause_max, pieces.closed()).await.is_ok() {
                gone.set();
            }
            return;
        }
        if !is_sent {
            return;
        }
    }
}

enum Event {
    Moved(Moved),
    Answered(Result<Response<Incoming>, Unanswered<Upload>>),
    Stuck,
}

enum Moved {
    One,
    All,
    Unwanted,
    Failed(io::Error),
}

/// Takes the next piece from the client and passes it to hyper. If dropped halfway, it leaves the
/// piece in `held`.
async fn move_piece(body: &mut RequestBody<'_>, pieces: &Pieces, held: &mut Option<Bytes>) -> Moved {
    if held.is_none() {
        match body.next().await {
            None => {
                let end = Part::End(body.trailers().and_then(fields::trailers));
                return pieces.send(end).await.map_or(Moved::Unwanted, |()| Moved::All);
            }
            Some(Err(error)) => return Moved::Failed(error),
            Some(Ok(piece)) => *held = Some(piece),
        }
    }
    let Ok(room) = pieces.reserve().await else { return Moved::Unwanted };
    if let Some(piece) = held.take() {
        room.send(Part::Piece(piece));
    }
    Moved::One
}

/// Waits until the server says `100 Continue`, or returns its response. A server that does not know
/// `Expect` says nothing, so the body is sent after a while (RFC 9110, section 10.1.1).
async fn until_wanted(
    mut responding: Responding<'_>,
    gate: oneshot::Receiver<()>,
) -> Option<Result<Response<Incoming>, Unanswered<Upload>>> {
    let mut go = pin!(timeout(CONTINUE_MAX, gate));
    let event = poll_fn(|cx| match responding.as_mut().poll(cx) {
        Poll::Ready(response) => Poll::Ready(Some(response)),
        Poll::Pending => go.as_mut().poll(cx).map(|_| None),
    });
    event.await
}

/// How long a client's body waits for `100 Continue`.
const CONTINUE_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::Future;
    use std::io;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use bytes::Bytes;
    use dapple::time::timeout;
    use hyper::body::Body as _;

    use super::{Gone, Upload, move_rest};
    use crate::http::Incoming;

    struct Pieces(VecDeque<&'static str>);

    impl Incoming for Pieces {
        fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Bytes::from(piece))))
        }

        fn len(&self) -> Option<u64> {
            None
        }
    }

    #[test]
    fn a_request_is_sent_when_its_end_is_taken_or_not_wanted() {
        let runtime = dapple::builder().workers(1).build().unwrap();
        let _entered = runtime.enter();
        let mut cx = Context::from_waker(Waker::noop());
        for is_measured in [false, true] {
            let (sender, mut upload) = Upload::channel(is_measured.then_some(6));
            let (gone, rest) = (Gone::default(), Box::new(Pieces(["two"].into())));
            let moving = move_rest(rest, sender, Some("one".into()), Duration::from_secs(3_600), gone.clone());
            let mut moving = pin!(moving);
            for piece in ["one", "two"] {
                assert!(moving.as_mut().poll(&mut cx).is_pending());
                let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut upload).poll_frame(&mut cx) else { panic!("{piece}") };
                assert_eq!(frame.into_data().unwrap(), piece);
            }
            if is_measured {
                // hyper does this at the stated length.
                drop(upload);
            } else {
                assert!(moving.as_mut().poll(&mut cx).is_pending());
                assert!(!gone.is_set(), "the end is not taken");
                assert!(matches!(Pin::new(&mut upload).poll_frame(&mut cx), Poll::Ready(None)));
            }
            assert!(moving.as_mut().poll(&mut cx).is_ready() && gone.is_set(), "{is_measured}");
        }
    }

    /// A body that never continues.
    struct Silent;

    impl Incoming for Silent {
        fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
            Poll::Pending
        }

        fn len(&self) -> Option<u64> {
            None
        }
    }

    #[test]
    fn the_wait_for_a_silent_client_lasts_as_long_as_the_response() {
        dapple::block_on(async {
            let (sender, _upload) = Upload::channel(None);
            let gone = Gone::default();
            let mut moving = pin!(move_rest(Box::new(Silent), sender, None, Duration::from_millis(1), gone.clone()));
            assert!(timeout(Duration::from_millis(50), moving.as_mut()).await.is_err());
            drop(gone);
            assert!(timeout(Duration::from_secs(60), moving).await.is_ok());
        });
    }
}
