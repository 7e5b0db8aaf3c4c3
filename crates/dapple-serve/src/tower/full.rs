//! Replies to clients that get no connection, in their HTTP version.

use std::future::{Future, poll_fn, ready};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dapple_http::{ReplyFraming, Request, write_head};
use dapple_io::Connection;
use dapple_io::time::timeout;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode, Version};
use http_body_util::Full;

use crate::connections::farewell;
use crate::http::connection::Terms;
use crate::http::{self as engine, Handler, Limits, RequestBody, http2};
use crate::link::Link;
use crate::request::caught;

/// A program's own reply to clients that get no connection.
pub(crate) type OnFull = Arc<dyn Fn() -> Response<String> + Send + Sync>;

/// Tells a client that there is no connection for it, and closes. Sends the program's reply if
/// there is one, or `words` in HTTP/1.1. Takes at most about two seconds.
pub(crate) async fn turn_away<S: Connection>(stream: S, words: &'static [u8], own: Option<OnFull>) {
    let own = own.and_then(|own| caught(|| own()).ok());
    let mut first = [0; PREFACE.len()];
    // An HTTP/2 client sends its preface at once.
    let read = timeout(FIRST_MAX, poll_fn(|cx| stream.poll_read(cx, &mut first))).await;
    match read {
        Ok(Ok(len)) if len > 0 && first.starts_with(&PREFACE[..len.min(PREFACE.len())]) => {
            let limits = Limits { idle_timeout: HTTP2_MAX / 4, ..Limits::default() };
            let terms = Terms { limits: Arc::new(limits), handle: None, link: Arc::new(Link::new(None)) };
            let begun = (stream, Bytes::copy_from_slice(&first[..len]));
            let _ = timeout(HTTP2_MAX, http2::serve(begun, Refusing(Arc::new(own.unwrap_or_else(full))), terms, None))
                .await;
        }
        Ok(Ok(0) | Err(_)) => {}
        _ => match own {
            Some(own) => farewell(stream, &written(&own), u64::MAX).await,
            None => farewell(stream, words, u64::MAX).await,
        },
    }
}

/// The default reply over HTTP/2.
fn full() -> Response<String> {
    let mut response = Response::new("All connections are in use. Please try again.\n".to_owned());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// The whole reply in HTTP/1.1 form.
fn written(reply: &Response<String>) -> Vec<u8> {
    let (mut bytes, framing) = (Vec::new(), ReplyFraming::Len(reply.body().len() as u64));
    write_head(&mut bytes, Version::HTTP_11, reply.status(), b"", reply.headers(), b"", framing, false);
    bytes.extend_from_slice(reply.body().as_bytes());
    bytes
}

/// Replies the same to all requests.
#[derive(Clone)]
struct Refusing(Arc<Response<String>>);

impl Handler for Refusing {
    type StreamBody = Full<Bytes>;

    async fn answer(&self, _request: &Request<'_>, _body: &mut RequestBody<'_>) -> engine::Reply {
        let reply = (*self.0).clone();
        let (parts, body) = reply.into_parts();
        engine::Reply::new(parts.status, parts.headers, engine::Body::Whole(body.into()))
    }

    fn answer_stream(
        self,
        _request: http::Request<hyper::body::Incoming>,
        _limits: Arc<Limits>,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send + 'static {
        ready((*self.0).clone().map(|body| Full::new(body.into())))
    }

    fn refuse(&self, status: StatusCode, reason: &str) -> engine::Reply {
        super::reply::text(status, format!("{reason}\n"))
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a client may take to send its first bytes.
const FIRST_MAX: Duration = Duration::from_millis(50);

/// How long an HTTP/2 client may take to read the reply.
const HTTP2_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    #[test]
    fn a_refusal_has_its_stated_length() {
        let text = String::from_utf8(super::written(&super::full())).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("connection: close"), "{text}");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{text}");
    }
}
