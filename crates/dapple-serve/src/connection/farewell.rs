//! Last words, and a close that lets them arrive.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use dapple_io::time::timeout;
use hyper::rt::{Read, ReadBuf, Write};

/// Says something and closes, so that it arrives. Whatever goes wrong here, the connection is over.
///
/// What the peer sends meanwhile is read, up to `len_max`, and not looked at.
pub(crate) async fn farewell<S: Read + Write + Unpin>(mut stream: S, words: &[u8], len_max: u64) {
    let talk = async {
        let mut rest = words;
        while !rest.is_empty() {
            let len = poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, rest)).await?;
            if len == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = &rest[len..];
        }
        poll_fn(|cx| Pin::new(&mut stream).poll_flush(cx)).await?;
        poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await?;
        // Closing with unread bytes would reset the connection, and the words could be lost on their way.
        let mut left = len_max;
        while left > 0 {
            match read_some(&mut stream).await? {
                0 => break,
                len => left = left.saturating_sub(len as u64),
            }
        }
        io::Result::Ok(())
    };
    let _ = timeout(FAREWELL_MAX, talk).await;
}

async fn read_some<S: Read + Unpin>(stream: &mut S) -> io::Result<usize> {
    poll_fn(|cx| {
        let mut space = [0; 4 << 10];
        let mut read = ReadBuf::new(&mut space);
        match Pin::new(&mut *stream).poll_read(cx, read.unfilled()) {
            Poll::Ready(result) => Poll::Ready(result.map(|()| read.filled().len())),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// How long a client may take to read it.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
