//! The response to a request.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dapple_io::time::{Instant, timeout_at};
use http::response::Parts;
use http::{HeaderMap, StatusCode, Version};
use hyper::body::Body as _;
use url::Url;

use super::{Error, ResponseBody};
use crate::relay::Room;

/// A response: its head is complete, its body may still arrive.
#[derive(Debug)]
pub struct Response {
    head: Parts,
    body: ResponseBody,
    url: Url,
    body_bytes_max: usize,
    trailers: Option<HeaderMap>,
}

impl Response {
    #[cfg_attr(not(feature = "decompression"), allow(unused_mut, unused_variables, reason = "nothing to decompress"))]
    pub(super) fn new(
        mut head: Parts,
        mut body: ResponseBody,
        url: Url,
        decodes: bool,
        body_bytes_max: usize,
    ) -> Response {
        #[cfg(feature = "decompression")]
        if decodes
            && !body.is_end_stream()
            && head.headers.get_all(http::header::CONTENT_ENCODING).iter().count() == 1
            && let Some(decoder) = super::decode::Decoder::of(head.headers[http::header::CONTENT_ENCODING].as_bytes())
        {
            body.decode(decoder);
            head.headers.remove(http::header::CONTENT_ENCODING);
            head.headers.remove(http::header::CONTENT_LENGTH);
        }
        Response { head, body, url, body_bytes_max, trailers: None }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.head.status
    }

    /// The HTTP version.
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// The fields of the head. A decompressed body has no `Content-Encoding` and no
    /// `Content-Length`.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The URL of the last request, which after redirects is not the first one.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// The trailers, after [`chunk`](Response::chunk) has returned `None`.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// Returns this response if its status is below 400.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub fn error_for_status(self) -> Result<Response, Error> {
        let status = self.status();
        if status.is_client_error() || status.is_server_error() {
            return Err(Error::Status { status, url: self.url.into() });
        }
        Ok(self)
    }

    /// Returns the next piece of the body, never an empty one; `None` at its end.
    ///
    /// # Cancel safety
    ///
    /// Safe: if dropped before it resolves, it has taken nothing.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::Broken`], [`Error::Malformed`], [`Error::Decompress`].
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(frame) = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await else { return Ok(None) };
            match frame?.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
    }

    /// Returns the whole body.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it ends the response and its connection, like dropping the
    /// response.
    ///
    /// # Errors
    ///
    /// [`Error::BodyTooLarge`] as soon as that is known, and the errors of
    /// [`chunk`](Response::chunk).
    pub async fn bytes(mut self) -> Result<Bytes, Error> {
        let max = self.body_bytes_max;
        if self.body.size_hint().lower() > max as u64 {
            return Err(Error::BodyTooLarge { max });
        }
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        let mut all = BytesMut::new();
        let mut next = Some(first);
        while let Some(piece) = next {
            if all.len() + piece.len() > max {
                return Err(Error::BodyTooLarge { max });
            }
            next = self.chunk().await?;
            if all.is_empty() && next.is_none() {
                return Ok(piece);
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }

    /// Returns the whole body if it has at most `len_max` bytes and comes within `limit`, with a place in `room`; otherwise the
    /// response, with its body from the beginning on. For proxies that look at short bodies, and pass long ones on.
    ///
    /// # Cancel safety
    ///
    /// As [`bytes`](Response::bytes).
    ///
    /// # Errors
    ///
    /// Those of [`chunk`](Response::chunk).
    pub async fn bytes_within(
        mut self,
        len_max: usize,
        limit: Duration,
        room: &Room,
    ) -> Result<Result<Bytes, Response>, Error> {
        let deadline = Instant::now() + limit;
        let hint = self.body.size_hint();
        let len = hint.upper().and_then(|upper| usize::try_from(upper).ok()).unwrap_or(len_max);
        if hint.lower() > len_max as u64 {
            return Ok(Err(self));
        }
        let Some(place) = room.place(len.min(len_max), limit).await else { return Ok(Err(self)) };
        let mut all = BytesMut::new();
        while all.len() <= len_max {
            match timeout_at(deadline, self.chunk()).await {
                Ok(piece) => match piece? {
                    Some(piece) => all.extend_from_slice(&piece),
                    None => return Ok(Ok(place.hold(all.freeze()))),
                },
                Err(_) => break,
            }
        }
        self.body.put_back(all.freeze(), place);
        Ok(Err(self))
    }

    /// Returns the whole body as UTF-8; invalid bytes become U+FFFD.
    ///
    /// # Cancel safety
    ///
    /// As [`bytes`](Response::bytes).
    ///
    /// # Errors
    ///
    /// As [`bytes`](Response::bytes).
    pub async fn text(self) -> Result<String, Error> {
        let bytes = self.bytes().await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the whole body, parsed as JSON.
    ///
    /// # Cancel safety
    ///
    /// As [`bytes`](Response::bytes).
    ///
    /// # Errors
    ///
    /// [`Error::Json`], and those of [`bytes`](Response::bytes).
    #[cfg(feature = "json")]
    pub async fn json<T: serde::de::DeserializeOwned>(self) -> Result<T, Error> {
        Ok(serde_json::from_slice(&self.bytes().await?)?)
    }

    /// Converts it for libraries that take responses of the crate `http`.
    pub fn into_http(self) -> http::Response<ResponseBody> {
        http::Response::from_parts(self.head, self.body)
    }
}
