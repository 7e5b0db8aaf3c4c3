//! A device chosen by name at run time.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use bytes::Bytes;

use super::name::{Kind, Name};
use super::stream::{StreamReader, StreamWriter};
use super::{
    Acceptor, Append, Device, Disk, DiskReader, DiskWriter, Pipe, Reader, SocketAcceptor, Tcp, Unix, Writer,
    unsupported,
};
use dapple_io::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use dapple_io::pipe::{Receiver, Sender};

/// The device of a [`Name`]: `tcp:HOST:PORT`, `unix:PATH`, `pipe:PATH`, `file:PATH` or
/// `append:PATH`.
#[derive(Debug)]
pub enum Any {}

/// The reading side of any device.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyReader {
    /// For `tcp:`.
    Tcp(StreamReader<TcpStream>),
    /// For `unix:`.
    Unix(StreamReader<UnixStream>),
    /// For `pipe:`.
    Pipe(StreamReader<Receiver>),
    /// For `file:`.
    File(DiskReader),
}

/// The writing side of any device.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyWriter {
    /// For `tcp:`.
    Tcp(StreamWriter<TcpStream>),
    /// For `unix:`.
    Unix(StreamWriter<UnixStream>),
    /// For `pipe:`.
    Pipe(StreamWriter<Sender>),
    /// For `file:` and `append:`.
    File(DiskWriter),
}

/// The listener of any device.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyAcceptor {
    /// For `tcp:`.
    Tcp(SocketAcceptor<TcpListener, TcpStream>),
    /// For `unix:`.
    Unix(SocketAcceptor<UnixListener, UnixStream>),
}

impl Device for Any {
    type Reader = AnyReader;
    type Writer = AnyWriter;
    type Acceptor = AnyAcceptor;

    async fn open_reader(name: &str) -> io::Result<AnyReader> {
        let name: Name = name.parse()?;
        Ok(match name.device() {
            Kind::Tcp => AnyReader::Tcp(Tcp::open_reader(name.rest()).await?),
            Kind::Unix => AnyReader::Unix(Unix::open_reader(name.rest()).await?),
            Kind::Pipe => AnyReader::Pipe(Pipe::open_reader(name.rest()).await?),
            Kind::File => AnyReader::File(Disk::open_reader(name.rest()).await?),
            Kind::Append => return Err(unsupported(&name.to_string(), "is only for writing: read it as file:PATH")),
        })
    }

    async fn open_writer(name: &str) -> io::Result<AnyWriter> {
        let name: Name = name.parse()?;
        Ok(match name.device() {
            Kind::Tcp => AnyWriter::Tcp(Tcp::open_writer(name.rest()).await?),
            Kind::Unix => AnyWriter::Unix(Unix::open_writer(name.rest()).await?),
            Kind::Pipe => AnyWriter::Pipe(Pipe::open_writer(name.rest()).await?),
            Kind::File => AnyWriter::File(Disk::open_writer(name.rest()).await?),
            Kind::Append => AnyWriter::File(Append::open_writer(name.rest()).await?),
        })
    }

    async fn connect(name: &str) -> io::Result<(AnyReader, AnyWriter)> {
        let name: Name = name.parse()?;
        match name.device() {
            Kind::Tcp => {
                let (reader, writer) = Tcp::connect(name.rest()).await?;
                Ok((AnyReader::Tcp(reader), AnyWriter::Tcp(writer)))
            }
            Kind::Unix => {
                let (reader, writer) = Unix::connect(name.rest()).await?;
                Ok((AnyReader::Unix(reader), AnyWriter::Unix(writer)))
            }
            _ => Err(unsupported(&name.to_string(), "this device has one direction: open a source or a sink of it")),
        }
    }

    async fn listen(name: &str) -> io::Result<AnyAcceptor> {
        let name: Name = name.parse()?;
        Ok(match name.device() {
            Kind::Tcp => AnyAcceptor::Tcp(Tcp::listen(name.rest()).await?),
            Kind::Unix => AnyAcceptor::Unix(Unix::listen(name.rest()).await?),
            _ => {
                let advice = "this device has no connections: listen at tcp: or unix:";
                return Err(unsupported(&name.to_string(), advice));
            }
        })
    }
}

impl Reader for AnyReader {
    fn poll_read(&mut self, cx: &mut Context<'_>, len_max: usize) -> Poll<io::Result<Bytes>> {
        match self {
            AnyReader::Tcp(reader) => reader.poll_read(cx, len_max),
            AnyReader::Unix(reader) => reader.poll_read(cx, len_max),
            AnyReader::Pipe(reader) => reader.poll_read(cx, len_max),
            AnyReader::File(reader) => reader.poll_read(cx, len_max),
        }
    }
}

impl Writer for AnyWriter {
    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            AnyWriter::Tcp(writer) => writer.poll_write(cx, bufs),
            AnyWriter::Unix(writer) => writer.poll_write(cx, bufs),
            AnyWriter::Pipe(writer) => writer.poll_write(cx, bufs),
            AnyWriter::File(writer) => writer.poll_write(cx, bufs),
        }
    }

    fn poll_sync(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            AnyWriter::File(writer) => writer.poll_sync(cx),
            AnyWriter::Tcp(_) | AnyWriter::Unix(_) | AnyWriter::Pipe(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            AnyWriter::Tcp(writer) => writer.poll_close(cx),
            AnyWriter::Unix(writer) => writer.poll_close(cx),
            AnyWriter::Pipe(writer) => writer.poll_close(cx),
            AnyWriter::File(writer) => writer.poll_close(cx),
        }
    }
}

impl Acceptor for AnyAcceptor {
    type Reader = AnyReader;
    type Writer = AnyWriter;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(AnyReader, AnyWriter, String)>> {
        match self {
            AnyAcceptor::Tcp(acceptor) => acceptor.poll_accept(cx).map_ok(|(reader, writer, peer)| {
                (AnyReader::Tcp(reader), AnyWriter::Tcp(writer), format!("tcp:{peer}"))
            }),
            AnyAcceptor::Unix(acceptor) => acceptor.poll_accept(cx).map_ok(|(reader, writer, peer)| {
                (AnyReader::Unix(reader), AnyWriter::Unix(writer), format!("unix:{peer}"))
            }),
        }
    }

    fn local_name(&self) -> io::Result<String> {
        match self {
            AnyAcceptor::Tcp(acceptor) => acceptor.local_name().map(|name| format!("tcp:{name}")),
            AnyAcceptor::Unix(acceptor) => acceptor.local_name().map(|name| format!("unix:{name}")),
        }
    }
}
