//! A request body that may have to be sent a second time.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;

use crate::http::{Incoming, RequestBody};

/// Keeps the read part of a body, up to a bound, so that it can be read again.
pub(crate) struct Replay<'r, 'a> {
    body: &'r mut RequestBody<'a>,
    kept: VecDeque<Bytes>,
    kept_len: usize,
    /// The number of kept pieces that have been read this time.
    read: usize,
    /// Whether everything read so far is kept.
    is_whole: bool,
    is_ended: bool,
    /// The trailers.
    trailers: Option<HeaderMap>,
}

impl<'r, 'a> Replay<'r, 'a> {
    pub(crate) fn new(body: &'r mut RequestBody<'a>) -> Replay<'r, 'a> {
        let (kept, kept_len, read) = Default::default();
        Replay { body, kept, kept_len, read, is_whole: true, is_ended: false, trailers: None }
    }

    /// Starts again from the beginning. Returns `false` if some of the body is no longer kept.
    pub(crate) fn rewind(&mut self) -> bool {
        self.read = 0;
        self.is_whole
    }
}

impl Incoming for Replay<'_, '_> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.is_whole
            && let Some(piece) = self.kept.get(self.read)
        {
            self.read += 1;
            return Poll::Ready(Some(Ok(piece.clone())));
        }
        if self.is_ended {
            return Poll::Ready(None);
        }
        let piece = ready!(self.body.poll_next(cx));
        match &piece {
            Some(Ok(piece)) if self.is_whole && self.kept_len + piece.len() <= KEPT_LEN_MAX => {
                self.kept_len += piece.len();
                self.kept.push_back(piece.clone());
                self.read += 1;
            }
            Some(Ok(_)) => {
                self.is_whole = false;
                self.kept = VecDeque::new();
            }
            _ => {
                self.is_ended = true;
                self.trailers = self.body.trailers();
            }
        }
        Poll::Ready(piece)
    }

    fn len(&self) -> Option<u64> {
        let again: usize = self.kept.iter().skip(self.read).map(Bytes::len).sum();
        let rest = if self.is_ended { Some(0) } else { self.body.len() };
        rest.map(|rest| rest + again as u64)
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.clone()
    }

    fn detach(&mut self) -> Option<Box<dyn Incoming + Send + Sync>> {
        // First: if the body cannot be detached, it may still have to be sent again.
        let rest = if self.is_ended { None } else { Some(self.body.detach()?) };
        let again = self.kept.drain(..).skip(self.read).collect();
        (self.is_whole, self.is_ended) = (false, true);
        Some(Box::new(Detached { again, rest, trailers: self.trailers.take() }))
    }
}

/// The kept pieces not yet sent again, and the rest of the body.
struct Detached {
    again: VecDeque<Bytes>,
    rest: Option<Box<dyn Incoming + Send + Sync>>,
    /// The trailers, if the body has ended.
    trailers: Option<HeaderMap>,
}

impl Incoming for Detached {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(piece) = self.again.pop_front() {
            return Poll::Ready(Some(Ok(piece)));
        }
        self.rest.as_mut().map_or(Poll::Ready(None), |rest| rest.poll_next(cx))
    }

    fn len(&self) -> Option<u64> {
        let again: usize = self.again.iter().map(Bytes::len).sum();
        let rest = self.rest.as_ref().map_or(Some(0), |rest| rest.len());
        rest.map(|rest| rest + again as u64)
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.rest.as_mut().map_or(self.trailers.take(), |rest| rest.trailers())
    }
}

/// How much of a body is kept for a retry: one request costs this much memory, and its buffers.
const KEPT_LEN_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;

    use super::{KEPT_LEN_MAX, Replay};
    use crate::http::{Incoming, RequestBody};

    struct Pieces(VecDeque<Bytes>);

    impl Incoming for Pieces {
        fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }

        fn len(&self) -> Option<u64> {
            Some(self.0.iter().map(|piece| piece.len() as u64).sum())
        }
    }

    fn next(replay: &mut Replay<'_, '_>) -> Option<Bytes> {
        match replay.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(piece) => piece.map(Result::unwrap),
            Poll::Pending => panic!("no piece has to be waited for"),
        }
    }

    #[test]
    fn a_body_can_be_read_again_from_its_start() {
        let mut pieces = Pieces(["ab", "cd", "e"].map(Bytes::from).into());
        let mut body = RequestBody::new(&mut pieces);
        let mut replay = Replay::new(&mut body);
        assert_eq!((replay.len(), next(&mut replay), replay.len()), (Some(5), Some("ab".into()), Some(3)));
        assert!(replay.rewind());
        assert_eq!(replay.len(), Some(5));
        for piece in ["ab", "cd", "e"] {
            assert_eq!(next(&mut replay), Some(piece.into()));
        }
        assert_eq!((next(&mut replay), replay.len()), (None, Some(0)));
        assert!(replay.rewind());
        assert_eq!((replay.len(), next(&mut replay)), (Some(5), Some("ab".into())));
    }

    #[test]
    fn a_body_that_cannot_be_detached_can_be_read_again() {
        let mut pieces = Pieces(["ab", "cd"].map(Bytes::from).into());
        let mut body = RequestBody::new(&mut pieces);
        let mut replay = Replay::new(&mut body);
        assert_eq!(next(&mut replay), Some("ab".into()));
        assert!(replay.detach().is_none());
        assert!(replay.rewind());
        assert_eq!((next(&mut replay), next(&mut replay)), (Some("ab".into()), Some("cd".into())));
    }

    #[test]
    fn a_body_that_is_too_long_is_read_once() {
        let piece = Bytes::from(vec![b'x'; KEPT_LEN_MAX]);
        let mut pieces = Pieces([piece.clone(), "end".into(), "x".into()].into());
        let mut body = RequestBody::new(&mut pieces);
        let mut replay = Replay::new(&mut body);
        assert_eq!(next(&mut replay), Some(piece));
        assert_eq!(next(&mut replay), Some("end".into()));
        assert!(!replay.rewind());
        assert_eq!(next(&mut replay), Some("x".into()), "nothing comes twice");
        assert_eq!(next(&mut replay), None);
    }
}
