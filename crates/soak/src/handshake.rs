//! TLS handshakes that do not finish.

use std::io::{self, Read, Write};

use crate::{Trust, Wire};

/// The point where a client stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// Within its first record, after this many bytes.
    Hello(usize),
    /// After the server's answer: it never sends the end.
    Answered,
    /// After its first record, with bytes that are not TLS.
    Nonsense,
}

impl Unfinished {
    /// Plays it on a new connection.
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
