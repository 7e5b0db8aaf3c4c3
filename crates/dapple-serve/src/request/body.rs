//! The body of a request, with limits on its size and pace.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dapple_io::time::{Instant, Sleep, sleep_until};
use http_body_util::{Full, Limited};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::exchange::{Exchange, Fault};
use super::pace::Pace;
use super::source::Source;
use crate::BoxError;
use crate::options::Options;

/// The body of a request that this crate serves, as it arrives.
///
/// It ends with an error if it gets larger than [`body_max_bytes`](crate::Serve::body_max_bytes)
/// (an [`http_body_util::LengthLimitError`]) or slower than
/// [`body_timeout`](crate::Serve::body_timeout) allows (an `io::Error` of kind `TimedOut`). If the
/// service then fails with any error, its client gets `413` or `408`. Both limits hold until the
/// reply begins: if a service answers while the request arrives, the two are a dialogue of unknown
/// length.
///
/// Only time in which the service waits for the client counts.
pub struct Body {
    /// `None` if there is no body.
    incoming: Option<(Source, Limits)>,
}

struct Limits {
    exchange: Arc<Exchange>,
    bytes_left: Option<u64>,
    pace: Option<Pace>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Body {
    pub(super) fn empty() -> Body {
        Body { incoming: None }
    }

    pub(super) fn new(source: Source, options: &Options, exchange: Arc<Exchange>) -> Body {
        let limits = Limits {
            exchange,
            bytes_left: options.body_max_bytes,
            pace: options.body_timeout.map(|timeout| Pace::new(timeout, options.receive_rate_min)),
            timer: None,
        };
        Body { incoming: Some((source, limits)) }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some((source, limits)) = &mut self.incoming else { return Poll::Ready(None) };
        match source.poll_frame(cx) {
            Poll::Pending => match limits.wait(cx) {
                true => Poll::Ready(Some(Err(limits.fault(Fault::TooSlow)))),
                false => Poll::Pending,
            },
            Poll::Ready(Some(Ok(frame))) => {
                let len = frame.data_ref().map_or(0, Bytes::len);
                if source.is_end() {
                    limits.exchange.set_read();
                }
                match limits.take(len) {
                    true => Poll::Ready(Some(Ok(frame))),
                    false => Poll::Ready(Some(Err(limits.fault(Fault::TooLarge)))),
                }
            }
            Poll::Ready(None) => {
                limits.exchange.set_read();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(|(source, _)| source.is_end())
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), |(source, _)| source.size_hint())
    }
}

impl Limits {
    /// Notes that the service waits for the client. Returns whether it has waited long enough.
    fn wait(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(pace) = &mut self.pace else { return false };
        if self.exchange.has_reply() {
            return false;
        }
        let deadline = pace.wait(Instant::now());
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().get_mut().reset(deadline);
        }
        timer.as_mut().poll(cx).is_ready()
    }

    /// Counts `len` bytes. Returns whether they are within the limit.
    fn take(&mut self, len: usize) -> bool {
        if let Some(pace) = &mut self.pace {
            pace.moved(len, Instant::now());
        }
        let Some(left) = &mut self.bytes_left else { return true };
        if self.exchange.has_reply() {
            return true;
        }
        let rest = left.checked_sub(len as u64);
        *left = rest.unwrap_or(0);
        rest.is_some()
    }

    fn fault(&self, fault: Fault) -> BoxError {
        self.exchange.set_fault(fault);
        match fault {
            Fault::TooLarge => too_large(),
            Fault::TooSlow => {
                io::Error::new(io::ErrorKind::TimedOut, "the request's body did not arrive in time").into()
            }
        }
    }
}

/// The error that other crates recognize as a body that is too large. Only its own crate can make
/// one.
fn too_large() -> BoxError {
    let mut limited = Limited::new(Full::new(Bytes::from_static(b"x")), 0);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    match Pin::new(&mut limited).poll_frame(&mut cx) {
        Poll::Ready(Some(Err(error))) => error,
        _ => "length limit exceeded".into(),
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("size_hint", &self.size_hint()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::LengthLimitError;

    #[test]
    fn other_crates_recognize_the_error_of_a_body_that_is_too_large() {
        assert!(super::too_large().is::<LengthLimitError>());
    }
}
