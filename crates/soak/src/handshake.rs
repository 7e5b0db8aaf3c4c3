//! Handshakes of TLS that do not come to their end.

use std::io::{self, Read, Write};

use crate::{Trust, Wire};

/// Where a client stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// In the middle of its first record, of which it sends so many bytes.
    Hello(usize),
    /// When the server has answered: it never sends the end.
    Answered,
    /// After its first record, in bytes that are no TLS.
    Nonsense,
}

impl Unfinished {
    /// Goes as far, on a connection that is new.
    ///
    /// # Errors
    ///
    /// The server ended the connection before.
    pub fn play(self, wire: &mut Wire, name: &'static str, trust: &Trust) -> io::Result<()> {
        let mut hello = Vec::new();
        trust.begin(name)?.write_tls(&mut hello)?;
        match self {
            Unfinished::Hello(len) => wire.write_all(&hello[..len.min(hello.len())]),
            Unfinished::Answered => {
                wire.write_all(&hello)?;
                wire.read_exact(&mut [0; 1])
            }
            Unfinished::Nonsense => {
                wire.write_all(&hello)?;
                wire.write_all(&[0x17; 2_000])
            }
        }
    }
}
