//! Files, read and written in order.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::name::{bad, check_path};
use super::stream::Nothing;
use super::{Device, Reader, Writer, named};
use crate::flow::{Sink, Source};
use dapple_io::fs::{File, OpenOptions};

/// Files, from the first byte to the last. Names are paths. A sink creates the file, or truncates
/// an existing one. For reads at offsets see [`BlockSource`](crate::flow::BlockSource).
#[derive(Debug)]
pub enum Disk {}

/// Files written at their end, and created if they do not exist. Names are paths. Sinks only.
#[derive(Debug)]
pub enum Append {}

impl Disk {
    /// Reads an open file from `offset` on.
    pub fn source(file: File, offset: u64) -> Source<Disk> {
        Source::new(DiskReader { file, offset, reading: None })
    }

    /// Writes to an open file from `offset` on, each write after the previous one.
    pub fn sink(file: File, offset: u64) -> Sink<Disk> {
        Sink::new(DiskWriter::new(file, offset))
    }
}

impl Device for Disk {
    type Reader = DiskReader;
    type Writer = DiskWriter;
    type Acceptor = Nothing<DiskReader, DiskWriter>;

    async fn open_reader(name: &str) -> io::Result<DiskReader> {
        check_path(name).map_err(|why| bad(name, &why))?;
        let file = File::open(name).await.map_err(|error| named(name, error))?;
        Ok(DiskReader { file, offset: 0, reading: None })
    }

    async fn open_writer(name: &str) -> io::Result<DiskWriter> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        open(name, &options).await
    }
}

impl Device for Append {
    type Reader = DiskReader;
    type Writer = DiskWriter;
    type Acceptor = Nothing<DiskReader, DiskWriter>;

    async fn open_writer(name: &str) -> io::Result<DiskWriter> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        open(name, &options).await
    }
}

async fn open(name: &str, options: &OpenOptions) -> io::Result<DiskWriter> {
    check_path(name).map_err(|why| bad(name, &why))?;
    let file = options.open(name).await.map_err(|error| named(name, error))?;
    Ok(DiskWriter::new(file, 0))
}

/// Reads a file, one piece after the other.
pub struct DiskReader {
    file: File,
    offset: u64,
    /// The read in flight. It stays when a future is dropped.
    reading: Option<Work<Vec<u8>>>,
}

/// Writes a file, one piece after the other.
pub struct DiskWriter {
    file: File,
    offset: u64,
    /// The write in flight, and its length.
    writing: Option<(Work<()>, usize)>,
    syncing: Option<Work<()>>,
}

type Work<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

impl Reader for DiskReader {
    fn poll_read(&mut self, cx: &mut Context<'_>, len_max: usize) -> Poll<io::Result<Bytes>> {
        let reading = self.reading.get_or_insert_with(|| {
            let (file, offset) = (self.file.clone(), self.offset);
            Box::pin(async move { file.read_at(offset, len_max).await })
        });
        let read = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        let read = read?;
        self.offset += read.len() as u64;
        Poll::Ready(Ok(read.into()))
    }
}

impl DiskWriter {
    fn new(file: File, offset: u64) -> Self {
        DiskWriter { file, offset, writing: None, syncing: None }
    }
}

impl Writer for DiskWriter {
    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let (writing, len) = self.writing.get_or_insert_with(|| {
            let data = gather(bufs);
            let (file, offset, len) = (self.file.clone(), self.offset, data.len());
            (Box::pin(async move { file.write_all_at(offset, data).await }), len)
        });
        let (result, len) = (ready!(writing.as_mut().poll(cx)), *len);
        self.writing = None;
        result?;
        self.offset += len as u64;
        Poll::Ready(Ok(len))
    }

    fn poll_sync(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let syncing = self.syncing.get_or_insert_with(|| {
            let file = self.file.clone();
            Box::pin(async move { file.sync_data().await })
        });
        let result = ready!(syncing.as_mut().poll(cx));
        self.syncing = None;
        Poll::Ready(result)
    }
}

/// The front of the buffers in one piece, which the kernel can keep until it is done. At least one
/// byte.
fn gather(bufs: &[IoSlice<'_>]) -> Vec<u8> {
    let mut data = Vec::new();
    for buf in bufs {
        let part = buf.len().min(GATHERED_MAX - data.len());
        data.extend_from_slice(&buf[..part]);
        if data.len() == GATHERED_MAX {
            break;
        }
    }
    data
}

impl std::fmt::Debug for DiskReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskReader").field("file", &self.file).field("offset", &self.offset).finish()
    }
}

impl std::fmt::Debug for DiskWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskWriter").field("file", &self.file).field("offset", &self.offset).finish()
    }
}

/// The most bytes written at once.
const GATHERED_MAX: usize = 256 * 1024;
