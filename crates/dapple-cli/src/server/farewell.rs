//! Last words.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use dapple::net::TcpStream;
use dapple::time::timeout;

/// Says something and closes, so that it arrives. Whatever goes wrong here, the connection is over.
pub(crate) async fn farewell(stream: TcpStream, words: &[u8]) {
    let talk = async {
        stream.write_all(words).await?;
        stream.shutdown(Shutdown::Write)?;
        // Closing with unread bytes would reset the connection, and the words could be lost on their way.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(FAREWELL_MAX, talk).await;
}

/// How long a client may take to read it.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
