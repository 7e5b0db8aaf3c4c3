//! Lines of text from a client that may send anything, at any speed, or nothing at all.

use std::time::Duration;

use dapple::net::TcpStream;
use dapple::time::timeout;

/// The next line, without its end and without control characters; `received` keeps the bytes after
/// it. `None` if the client has left, has been silent for too long, or sends an endless line.
pub(crate) async fn next_line(stream: &TcpStream, received: &mut Vec<u8>) -> Option<String> {
    while !received.contains(&b'\n') {
        if received.len() >= LINE_MAX {
            return None;
        }
        let mut chunk = [0; 512];
        let count = timeout(SILENCE_MAX, stream.read(&mut chunk)).await.ok()?.ok()?;
        if count == 0 {
            return None;
        }
        received.extend_from_slice(&chunk[..count]);
    }
    let end = received.iter().position(|&byte| byte == b'\n')?;
    let line: Vec<u8> = received.drain(..=end).collect();
    // Escape sequences of one client must not reach the terminal of another.
    Some(String::from_utf8_lossy(&line).chars().filter(|letter| !letter.is_control()).collect())
}

/// In bytes.
const LINE_MAX: usize = 1024;

/// How long a client may be silent.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(600);
