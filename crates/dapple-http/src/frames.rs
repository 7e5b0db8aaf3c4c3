//! The frames of an HTTP/2 connection: how much work a peer causes without a request.
//!
//! hyper answers any number of PING and SETTINGS frames, and accepts windows that open by the byte.
//! This module counts frames as they arrive, and ends a connection with few others. Empty frames
//! are PING, SETTINGS, PRIORITY, WINDOW_UPDATE, RST_STREAM, unknown ones and DATA without a byte.
//! Requests and replies allow more of them; neither the peer's pace nor the time matters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The activity of both sides of a connection. Only the connection's task writes it.
#[derive(Debug, Default)]
pub struct Traffic {
    written: AtomicU64,
    /// Bytes of the answers to PING and SETTINGS.
    answers: AtomicU64,
    is_blocked: AtomicBool,
}

impl Traffic {
    /// Sets whether writing waits for the peer.
    pub fn set_blocked(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Ordering::Relaxed);
    }

    /// Whether data waits to be written because the peer does not read.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    /// Adds written bytes.
    pub fn wrote(&self, len: usize) {
        add(&self.written, len as u64);
    }

    /// Bytes written other than answers to PING and SETTINGS.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed).saturating_sub(self.answers.load(Ordering::Relaxed))
    }
}

fn add(to: &AtomicU64, more: u64) {
    to.store(to.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// Reads the headers of the frames that a peer sends.
///
/// ```
/// use dapple_http::frames::{Scanner, Traffic};
///
/// let (mut scanner, traffic) = (Scanner::new(), Traffic::default());
/// assert!(scanner.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &traffic));
/// // Only PING frames.
/// let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
/// let pings = (0..10_000).take_while(|_| scanner.read(&ping, &traffic)).count();
/// assert_eq!(pings, 1_000);
/// ```
#[derive(Debug)]
pub struct Scanner {
    /// The remaining bytes of the preface or the frame's payload.
    skip: u64,
    head: [u8; HEAD_LEN],
    head_len: usize,
    requests: u64,
    /// Empty frames so far.
    empty: u64,
}

impl Scanner {
    /// For a connection from its first byte on, the client's preface.
    #[expect(
        clippy::new_without_default,
        reason = "a scanner belongs to a connection, and is never a part of defaults"
    )]
    pub fn new() -> Scanner {
        Scanner { skip: PREFACE_LEN, head: [0; HEAD_LEN], head_len: 0, requests: 0, empty: 0 }
    }

    /// Reads the next bytes of the peer; false if there are more empty frames than the other
    /// traffic allows.
    pub fn read(&mut self, mut bytes: &[u8], traffic: &Traffic) -> bool {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len() as u64);
            self.skip -= skipped;
            bytes = &bytes[skipped as usize..];
            let len = (HEAD_LEN - self.head_len).min(bytes.len());
            self.head[self.head_len..][..len].copy_from_slice(&bytes[..len]);
            self.head_len += len;
            bytes = &bytes[len..];
            if self.head_len == HEAD_LEN {
                self.head_len = 0;
                self.frame(traffic);
            }
        }
        let paid = traffic.written.load(Ordering::Relaxed) / BYTES_PER_EMPTY + self.requests * EMPTY_PER_REQUEST;
        self.empty <= EMPTY_MAX + paid
    }

    fn frame(&mut self, traffic: &Traffic) {
        let [len0, len1, len2, kind, flags, ..] = self.head;
        self.skip = u64::from(u32::from_be_bytes([0, len0, len1, len2]));
        let is_answered = matches!(kind, SETTINGS | PING) && flags & ACK == 0;
        if is_answered {
            add(&traffic.answers, HEAD_LEN as u64 + if kind == PING { self.skip } else { 0 });
        }
        match kind {
            HEADERS => self.requests += 1,
            DATA | CONTINUATION if self.skip > 0 => {}
            _ => self.empty += 1,
        }
    }
}

const HEAD_LEN: usize = 9;
const PREFACE_LEN: u64 = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;

/// The number of empty frames that any connection may send.
const EMPTY_MAX: u64 = 1_000;

/// More of them for each request. Clients that reopen both windows for each small reply, and ping
/// the server, need fewer.
const EMPTY_PER_REQUEST: u64 = 8;

/// One more for this many bytes of replies. Clients open windows by at least as many kilobytes.
const BYTES_PER_EMPTY: u64 = 64;

#[cfg(test)]
mod tests {
    use super::{EMPTY_MAX, Scanner, Traffic};

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0, 0, payload.len() as u8, kind, 0, 0, 0, 0, 1];
        frame.extend(payload);
        frame
    }

    /// How many of these frames are accepted, in pieces of this size.
    fn taken(frame: &[u8], piece_len: usize, written: usize) -> u64 {
        let (mut scanner, traffic) = (Scanner::new(), Traffic::default());
        assert!(scanner.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &traffic));
        for count in 0..4 * EMPTY_MAX {
            traffic.wrote(written);
            if !frame.chunks(piece_len).all(|piece| scanner.read(piece, &traffic)) {
                return count;
            }
        }
        u64::MAX
    }

    #[test]
    fn floods_are_seen_however_they_are_cut() {
        for piece_len in [1, 4, 9, 100] {
            assert_eq!(taken(&frame(6, &[1; 8]), piece_len, 0), EMPTY_MAX, "PING");
            assert_eq!(taken(&frame(4, &[]), piece_len, 0), EMPTY_MAX, "SETTINGS");
            assert_eq!(taken(&frame(0, &[]), piece_len, 0), EMPTY_MAX, "DATA");
        }
        assert!(taken(&frame(6, &[1; 8]), 17, 17) < 2 * EMPTY_MAX, "answers allow few more");
    }

    #[test]
    fn what_is_used_is_not_counted() {
        assert_eq!(taken(&frame(0, &[1; 50]), 7, 0), u64::MAX, "DATA");
        let request = [frame(1, &[0x82; 20]), frame(8, &[0; 4]), frame(8, &[0; 4]), frame(6, &[0; 8])].concat();
        assert_eq!(taken(&request, 11, 0), u64::MAX, "requests");
        assert_eq!(taken(&frame(8, &[0; 4]), 13, 16_384), u64::MAX, "windows of a download");
    }

    #[test]
    fn answers_are_no_news() {
        let (mut scanner, traffic) = (Scanner::new(), Traffic::default());
        scanner.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &traffic);
        scanner.read(&frame(6, &[1; 8]), &traffic);
        scanner.read(&frame(4, &[0; 6]), &traffic);
        traffic.wrote(17 + 9);
        assert_eq!(traffic.written(), 0);
        traffic.wrote(100);
        assert_eq!(traffic.written(), 100);
    }
}
