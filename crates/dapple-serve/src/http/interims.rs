//! Interim responses, which go ahead of a reply (RFC 9110, section 15.2).

use std::sync::{Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, StatusCode};

use super::trailers::write_fields;

/// Interim responses to one request, in the form of HTTP/1.1, until the connection takes them to write them.
///
/// Behind a lock and not a reference, as whoever answers and whoever writes hold it at the same time; both are one task.
#[derive(Debug, Default)]
pub struct Interims(Mutex<Vec<u8>>);

impl Interims {
    /// Has one wait to be written. Where the client does not take those that wait already, nothing: it can do without.
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

    /// The text of those that wait, if any do.
    pub fn take(&self) -> Option<Vec<u8>> {
        let mut text = self.lock();
        (!text.is_empty()).then(|| std::mem::take(&mut *text))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        // Nothing that can panic half-way happens under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many bytes wait at a time.
const LEN_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::{Interims, LEN_MAX};

    #[test]
    fn what_waits_is_bounded() {
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
        assert!((LEN_MAX / 2..LEN_MAX).contains(&interims.take().unwrap().len()), "one, and nothing of the next");
    }
}
