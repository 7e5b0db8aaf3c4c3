//! A connection of SMTP, with bounds for lines and waits.

use std::io;
use std::time::Duration;

use dapple::net::TcpStream;
use dapple::time::timeout;
use smtp_proto::request::receiver::DataReceiver;

pub(crate) struct Wire {
    stream: TcpStream,
    /// Bytes that were read and not used.
    buf: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Wire {
        Wire { stream, buf: Vec::new() }
    }

    /// Connects to a server.
    pub(crate) async fn connect(address: &str) -> io::Result<Wire> {
        Ok(Wire::new(within(TcpStream::connect(address)).await?))
    }

    /// The next line with its end; `None` at the end of the connection.
    pub(crate) async fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.buf.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.buf.drain(..=end).collect()));
            }
            if self.buf.len() > LINE_LEN_MAX {
                return Err(io::Error::other("a line is too long"));
            }
            if !self.read().await? {
                return Ok(None);
            }
        }
    }

    /// The text of a mail, up to a line with a single dot between the right line ends; `None` if it is longer than
    /// `len_max`.
    pub(crate) async fn mail(&mut self, len_max: usize) -> io::Result<Option<Vec<u8>>> {
        let (mut receiver, mut mail, mut is_too_long) = (DataReceiver::new(), Vec::new(), false);
        loop {
            let mut bytes = self.buf.iter();
            let is_end = receiver.ingest(&mut bytes, &mut mail);
            let left = bytes.len();
            self.buf.drain(..self.buf.len() - left);
            if mail.len() > len_max {
                (is_too_long, mail) = (true, Vec::new());
            }
            if is_end {
                return Ok((!is_too_long).then_some(mail));
            }
            if !self.read().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads what is there; `false` at the end of the connection.
    async fn read(&mut self) -> io::Result<bool> {
        let mut piece = vec![0; PIECE_LEN];
        let len = within(self.stream.read(&mut piece)).await?;
        self.buf.extend(&piece[..len]);
        Ok(len > 0)
    }

    pub(crate) async fn send(&self, text: impl AsRef<[u8]>) -> io::Result<()> {
        within(self.stream.write_all(text.as_ref())).await
    }
}

async fn within<T>(wait: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(WAIT_MAX, wait).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

const LINE_LEN_MAX: usize = 2048;
const PIECE_LEN: usize = 16 << 10;
const WAIT_MAX: Duration = Duration::from_secs(60);
