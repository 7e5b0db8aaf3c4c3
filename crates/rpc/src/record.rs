//! Records on a stream (RFC 5531, section 11): each consists of fragments, and each fragment begins
//! with its length.

use std::io::{self, ErrorKind};

use dapple::net::TcpStream;

use crate::MESSAGE_MAX;
use crate::message::{LAST_FRAGMENT, MARK, mark};

/// Reads the next record as if it had come in one fragment. `None` if the stream has ended between
/// two records.
pub(crate) async fn read(stream: &TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut message = vec![0; MARK];
    for fragment in 0..FRAGMENTS_MAX {
        let mut head = [0; MARK];
        let first = stream.read(&mut head).await?;
        if first == 0 && fragment == 0 {
            return Ok(None);
        }
        if first == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        stream.read_exact(&mut head[first..]).await?;
        let word = u32::from_be_bytes(head);
        let (start, len) = (message.len(), (word & !LAST_FRAGMENT) as usize);
        if start + len > MARK + MESSAGE_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "a record is too long"));
        }
        message.resize(start + len, 0);
        stream.read_exact(&mut message[start..]).await?;
        if word & LAST_FRAGMENT != 0 {
            let whole = mark(message.len() - MARK);
            message[..MARK].copy_from_slice(&whole);
            return Ok(Some(message));
        }
    }
    Err(io::Error::new(ErrorKind::InvalidData, "a record has too many fragments"))
}

/// As many as a reasonable sender makes of a message.
const FRAGMENTS_MAX: usize = 64;
