//! Interim responses, which precede a reply (RFC 9110, section 15.2).

use std::sync::{Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, StatusCode};

use super::trailers::write_fields;

/// Interim responses to one request, in HTTP/1.1 form, until the connection writes them.
///
/// Uses a lock and not a reference, because the service and the writer, which are one task, hold it
/// at the same time.
#[derive(Debug, Default)]
pub struct Interims(Mutex<Vec<u8>>);

impl Interims {
    /// Queues an interim response. Drops it if the client does not take the earlier ones: the
    /// response is optional.
    pub fn push(&self, status: StatusCode, headers: &HeaderMap) {
        let mut text = self.lock();
        let start = text.len();
        text.extend_from_slice(b"HTTP/1.1 ");
        text.extend_from_slice(status.as_str().as_bytes());
        text.push(b' ');
        text.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        text.extend_from_slice(b"\r\n");
        write_fields(headers, &mut text);
        if text.len() > LEN_MAX {
            text.truncate(start);
        }
    }

    /// The text of the queued responses, if any.
    pub fn take(&self) -> Option<Vec<u8>> {
        let mut text = self.lock();
        (!text.is_empty()).then(|| std::mem::take(&mut *text))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        // Nothing under the lock can panic halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most bytes that wait at a time.
const LEN_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::{Interims, LEN_MAX};

    #[test]
    fn queued_responses_are_bounded() {
        let (interims, mut headers) = (Interims::default(), HeaderMap::new());
        headers.insert("link", HeaderValue::from_static("</a.css>; rel=preload"));
        interims.push(StatusCode::EARLY_HINTS, &headers);
        interims.push(StatusCode::CONTINUE, &HeaderMap::new());
        let text = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
        assert_eq!(interims.take().as_deref(), Some(text.as_bytes()));
        assert_eq!(interims.take(), None);
        headers.insert("link", HeaderValue::from_maybe_shared(vec![b'x'; LEN_MAX / 2]).unwrap());
        for _ in 0..3 {
            interims.push(StatusCode::EARLY_HINTS, &headers);
        }
        assert!(
            (LEN_MAX / 2..LEN_MAX).contains(&interims.take().unwrap().len()),
            "one response, and nothing of the \
            next"
        );
    }
}
