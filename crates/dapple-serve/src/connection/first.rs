//! The first request of a connection, while most of what comes is refused.
//!
//! Who is refused comes again, and mostly on a new connection. What hyper needs for one costs several times as much as to say no. So
//! while requests are dear, the first head is looked at before there is a hyper, and offered to admission here. If that refuses it, the
//! reply is written at once, with the end of the connection in the same packet where the client wants that. In all other cases hyper
//! reads the same bytes as if nothing had been, and the decision waits for it in the [`Link`].
//!
//! Only plain requests are looked at: a whole head of HTTP/1.1 in the first bytes, `GET`, without a body or anything that asks for another
//! protocol. A refusal in words of the program's own is left to hyper, too.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use dapple_http::{DateLine, Form, Framing, HeadLimits, HeadScan, ReplyFraming, parse, write_head};
use dapple_io::time::sleep;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, Uri, Version};
use hyper::rt::Write;

use super::link::Link;
use super::watched::Watched;
use super::{End, Look, Watch};
use crate::connections::Order;
use crate::request::{Open, Words, caught};
use crate::server::Shared;
use dapple_io::Connection;

/// How the connection ended, if it has; otherwise hyper goes on with it.
///
/// Not cancel safe: dropped before it resolves, a reply may have been written in part.
pub(super) async fn answer<S: Connection>(stream: &mut Watched<S>, link: &Arc<Link>, shared: &Shared) -> Option<End> {
    let admission = shared.gate.admission().filter(|admission| admission.is_busy())?;
    let mut limits = Limits { link, shared, watch: None };
    // Told to finish, it may wait on: hyper, who is told next, would end it.
    match limits.within(|cx| stream.poll_fill(cx), Finish::Stops).await? {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Some(End::Done(Err(error.into()))),
        Err(end) => return Some(end),
    }
    let asked = Asked::read(stream.kept(), shared.options.header_bytes_max)?;
    // If the program's own word about it panics, hyper comes upon that again and says so.
    let offer = caught(|| shared.gate.offer(&asked.parts, &link.peer(), link.arrived())).ok()?;
    let words = Words::new(shared.on_refusal.clone(), &asked.parts);
    match (admission.offer(offer), words.are_plain()) {
        (Err(refused), true) => {
            stream.forget(asked.len);
            refuse(stream, &mut limits, &words.plain(&refused), asked.keep_alive).await
        }
        (decision, _) => {
            link.decide(decision);
            None
        }
    }
}

/// Says so, and ends the connection where the client or the server wants that.
async fn refuse<S: Connection>(
    stream: &mut Watched<S>,
    limits: &mut Limits<'_>,
    reply: &Response<String>,
    keep_alive: bool,
) -> Option<End> {
    limits.shared.counts.request();
    let open = Open::new(limits.link.clone(), None);
    if let Some(wait) = limits.shared.gate.pace_wait() {
        let mut pause = pin!(sleep(wait));
        if let Some(Err(end)) = limits.within(|cx| pause.as_mut().poll(cx), Finish::Waits).await {
            return Some(end);
        }
    }
    let is_last = !keep_alive || limits.link.ordered() >= Order::LastReply;
    let bytes = written(reply, !is_last);
    let mut said = 0;
    let say = |cx: &mut Context<'_>| {
        while said < bytes.len() {
            let rest = &bytes[said..];
            match std::task::ready!(stream.poll_say(cx, rest, is_last))? {
                0 => return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero))),
                len => said += len,
            }
        }
        if is_last { stream.poll_end(cx) } else { Pin::new(&mut *stream).poll_flush(cx) }
    };
    let result = limits.within(say, Finish::Waits).await?;
    drop(open);
    match result {
        Ok(Ok(())) if is_last => Some(End::Done(Ok(()))),
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(End::Done(Err(error.into()))),
        Err(end) => Some(end),
    }
}

/// All of the reply.
fn written(reply: &Response<String>, keep_alive: bool) -> Vec<u8> {
    let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let body = reply.body();
    let mut bytes = Vec::with_capacity(REPLY_LEN + body.len());
    let (version, framing) = (Version::HTTP_11, ReplyFraming::Len(body.len() as u64));
    DATE.with_borrow_mut(|date| {
        write_head(&mut bytes, version, reply.status(), b"", reply.headers(), date.at(second), framing, keep_alive);
    });
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

/// The limits of the connection, looked at once there is something to wait for.
struct Limits<'a> {
    link: &'a Arc<Link>,
    shared: &'a Shared,
    watch: Option<Watch<'a>>,
}

/// What it means to be told to finish.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Finish {
    Stops,
    /// Something else comes first.
    Waits,
}

impl Limits<'_> {
    /// The result of `poll`, or how the connection ended before; `None` where it was told to finish.
    async fn within<R>(
        &mut self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>,
        finish: Finish,
    ) -> Option<Result<R, End>> {
        poll_fn(|cx| {
            if let Poll::Ready(result) = poll(cx) {
                return Poll::Ready(Some(Ok(result)));
            }
            let watch = self.watch.get_or_insert_with(|| Watch::new(self.link, self.shared));
            loop {
                match watch.look(cx) {
                    Look::Wait => return Poll::Pending,
                    Look::Finish if finish == Finish::Stops => return Poll::Ready(None),
                    Look::Finish => {}
                    Look::End(end) => return Poll::Ready(Some(Err(end))),
                }
            }
        })
        .await
    }
}

/// A request that is looked at here.
struct Asked {
    parts: Parts,
    /// Of its head.
    len: usize,
    keep_alive: bool,
}

impl Asked {
    /// The request that these bytes begin with, if it is plain. What is not, or is malformed, hyper knows how to answer.
    fn read(bytes: &Bytes, len_max: usize) -> Option<Asked> {
        let limits = HeadLimits { len_max, ..HeadLimits::default() };
        let found = HeadScan::new().find(bytes, &limits).ok()??;
        let mut storage = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let storage = storage.get_mut(..found.fields)?;
        let head = parse(&bytes[found.start..found.end], storage, &limits).ok()?;
        let request = &head.request;
        let is_plain = request.method == Method::GET
            && request.version == Version::HTTP_11
            && request.form == Form::Origin
            && head.framing == Framing::None
            && request.fields.first("upgrade").is_none();
        if !is_plain {
            return None;
        }
        let mut parts = Request::new(()).into_parts().0;
        let path_at = request.path.as_ptr().addr() - bytes.as_ptr().addr();
        let target_len = request.path.len() + request.query.map_or(0, |query| 1 + query.len());
        parts.uri = Uri::from_maybe_shared(bytes.slice(path_at..path_at + target_len)).ok()?;
        parts.headers.reserve(found.fields);
        for field in request.fields.iter() {
            let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
            let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).ok()?;
            parts.headers.append(name, value);
        }
        Some(Asked { parts, len: found.end, keep_alive: head.keep_alive })
    }
}

thread_local! {
    static DATE: RefCell<DateLine> = const { RefCell::new(DateLine::new()) };
}

/// About as long as the head of a refusal is.
const REPLY_LEN: usize = 256;

/// More fields than plain requests have.
const FIELDS_MAX: usize = 48;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Asked;

    fn read(text: &str) -> Option<Asked> {
        Asked::read(&Bytes::copy_from_slice(text.as_bytes()), 8 << 10)
    }

    #[test]
    fn a_plain_request_is_read_as_it_is() {
        let asked =
            read("\r\nGET /a/b?c=d&e HTTP/1.1\r\nHost: x\r\nA: 1\r\nConnection: close\r\na: 2\r\n\r\nmore").unwrap();
        let parts = &asked.parts;
        assert_eq!((parts.method.as_str(), parts.uri.path(), parts.uri.query()), ("GET", "/a/b", Some("c=d&e")));
        assert_eq!(parts.headers.get_all("a").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!((parts.headers["host"].as_bytes(), parts.headers.len(), asked.keep_alive), (&b"x"[..], 4, false));
        assert_eq!(
            asked.len,
            "\r\nGET /a/b?c=d&e HTTP/1.1\r\nHost: x\r\nA: 1\r\nConnection: close\r\na: 2\r\n\r\n".len()
        );
        assert!(read("GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap().keep_alive);
    }

    #[test]
    fn whatever_is_not_plain_is_left_to_hyper() {
        for other in [
            "",
            "GET / HTTP/1.1\r\nHost: x\r\n",
            "GET / HTTP/1.0\r\nHost: x\r\n\r\n",
            "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na",
            "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            "GET / HTTP/1.1\nHost: x\n\n",
            "GET / HTTP/1.1\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            assert!(read(other).is_none(), "{other:?}");
        }
        let many: String = (0..100).map(|number| format!("a{number}: b\r\n")).collect();
        assert!(read(&format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n")).is_none());
        assert!(read(&format!("GET / HTTP/1.1\r\nHost: x\r\na: {}\r\n\r\n", "b".repeat(9_000))).is_none());
    }
}
