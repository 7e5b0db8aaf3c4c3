//! A final reply to a client that is not served, and a close that lets the reply arrive.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use dapple_io::Connection;
use dapple_io::time::timeout;

/// Sends `words` and closes so that they arrive. Ignores errors, because the connection is over.
///
/// Reads and discards the peer's bytes meanwhile, up to `len_max`.
pub async fn farewell(stream: impl Connection, words: &[u8], len_max: u64) {
    let talk = async {
        let mut rest = words;
        while !rest.is_empty() {
            let len = poll_fn(|cx| stream.poll_write(cx, rest)).await?;
            if len == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = &rest[len..];
        }
        poll_fn(|cx| stream.poll_flush(cx)).await?;
        poll_fn(|cx| stream.poll_end(cx)).await?;
        // Closing with unread bytes would reset the connection, and the words could be lost on
        // their way.
        let mut left = len_max;
        while left > 0 {
            match poll_fn(|cx| stream.poll_read(cx, &mut [0; 4 << 10])).await? {
                0 => break,
                len => left = left.saturating_sub(len as u64),
            }
        }
        io::Result::Ok(())
    };
    let _ = timeout(FAREWELL_MAX, talk).await;
}

/// How long a client may take to read the reply.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
