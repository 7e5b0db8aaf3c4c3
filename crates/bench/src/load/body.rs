//! The expected body of an answer.

use std::sync::Arc;

/// The expected bytes of a file: `len` bytes of `bytes` from `start` on, which continue at the
/// beginning of `bytes` after its end. Many files can be cut from the same bytes. So the expected
/// bytes stay in the processor's cache, and the check takes little time from a server on the same
/// processor.
#[derive(Clone)]
pub(crate) struct Body {
    bytes: Arc<[u8]>,
    start: usize,
    len: u64,
}

impl Body {
    /// All of these bytes.
    pub(crate) fn whole(bytes: Vec<u8>) -> Body {
        Body { len: bytes.len() as u64, bytes: bytes.into(), start: 0 }
    }

    /// Cuts a body from bytes that are used as a ring; `None` if there are no bytes.
    pub(crate) fn cut(bytes: &Arc<[u8]>, start: u64, len: u64) -> Option<Body> {
        let round = bytes.len() as u64;
        (round > 0 || len == 0).then(|| Body { bytes: bytes.clone(), start: (start % round.max(1)) as usize, len })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether these bytes are part of the body at `offset`.
    pub(crate) fn holds(&self, offset: u64, mut piece: &[u8]) -> bool {
        if offset + piece.len() as u64 > self.len {
            return false;
        }
        if piece.is_empty() {
            return true;
        }
        let round = self.bytes.len();
        let mut at = (self.start + (offset % round as u64) as usize) % round;
        while !piece.is_empty() {
            let count = piece.len().min(round - at);
            if piece[..count] != self.bytes[at..at + count] {
                return false;
            }
            piece = &piece[count..];
            at = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_goes_round() {
        let bytes: Arc<[u8]> = Arc::from(&b"abcde"[..]);
        let body = Body::cut(&bytes, 8, 9).expect("there are bytes");
        assert!(body.holds(0, b"deabcdeab") && body.holds(4, b"cdeab") && body.holds(9, b""));
        assert!(!body.holds(0, b"abcdeabcd"), "another start");
        assert!(!body.holds(4, b"cdeabc"), "one byte too many");
        assert!(!body.holds(3, b"bcdeaX"), "one wrong byte");
        assert!(Body::cut(&Arc::from([]), 0, 1).is_none());
    }

    #[test]
    fn a_whole_file() {
        let body = Body::whole(b"hello".to_vec());
        assert!(body.len() == 5 && body.holds(0, b"hello") && !body.holds(1, b"hell"));
        assert!(Body::whole(Vec::new()).holds(0, b"") && !Body::whole(Vec::new()).holds(0, b"x"));
    }
}
