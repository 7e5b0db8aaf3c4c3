//! Pipes: within the process, and FIFOs by path.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::name::{bad, check_path};
use super::stream::{Nothing, StreamReader, StreamWriter};
use super::{Device, named};
use crate::flow::{Sink, Source};
use dapple_io::blocking;
use dapple_io::pipe::{Receiver, Sender, pipe as raw_pipe};
use dapple_io::time::sleep;

/// Pipes. Names are paths of FIFOs (`mkfifo`). A sink opens when the FIFO has a reader. A source
/// waits for its first writer as for bytes, and ends when the last writer has closed.
#[derive(Debug)]
pub enum Pipe {}

/// A pipe: the source yields what the sink writes.
///
/// # Errors
///
/// No descriptor is left, or no runtime is current.
pub fn pipe() -> io::Result<(Sink<Pipe>, Source<Pipe>)> {
    let (sender, receiver) = raw_pipe()?;
    Ok((Pipe::sink(sender), Pipe::source(receiver)))
}

impl Pipe {
    /// The reading end of a pipe, such as a child's standard output, as a source.
    pub fn source(receiver: Receiver) -> Source<Pipe> {
        Source::new(StreamReader(Arc::new(receiver)))
    }

    /// The writing end of a pipe, such as a child's standard input, as a sink.
    pub fn sink(sender: Sender) -> Sink<Pipe> {
        Sink::new(StreamWriter(Arc::new(sender)))
    }
}

impl Device for Pipe {
    type Reader = StreamReader<Receiver>;
    type Writer = StreamWriter<Sender>;
    type Acceptor = Nothing<Self::Reader, Self::Writer>;

    async fn open_reader(name: &str) -> io::Result<Self::Reader> {
        let mut options = OpenOptions::new();
        options.read(true);
        let fifo = open_fifo(name, options).await.map_err(|error| named(name, error))?;
        // A read before the first writer would report the end.
        Ok(StreamReader(Arc::new(Receiver::from_fifo(fifo)?)))
    }

    async fn open_writer(name: &str) -> io::Result<Self::Writer> {
        let mut options = OpenOptions::new();
        options.write(true);
        loop {
            match open_fifo(name, options.clone()).await {
                Ok(fifo) => return Ok(StreamWriter(Arc::new(Sender::from_fd(fifo)?))),
                // The kernel does not report a new reader. A blocking `open` would keep a thread of
                // the pool.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => sleep(READER_PAUSE).await,
                Err(error) => return Err(named(name, error)),
            }
        }
    }
}

async fn open_fifo(name: &str, mut options: OpenOptions) -> io::Result<std::fs::File> {
    check_path(name).map_err(|why| bad(name, &why))?;
    let path = name.to_owned();
    let opened = blocking::spawn_blocking(move || {
        let not_a_pipe =
            || io::Error::new(io::ErrorKind::InvalidInput, "is not a pipe: make one with mkfifo, or use file:");
        // Opening other files can have side effects.
        if !std::fs::metadata(&path)?.file_type().is_fifo() {
            return Err(not_a_pipe());
        }
        let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(&path)?;
        if file.metadata()?.file_type().is_fifo() { Ok(file) } else { Err(not_a_pipe()) }
    });
    opened.await?
}

/// The pause between two attempts to open a FIFO without a reader.
const READER_PAUSE: Duration = Duration::from_millis(10);
