//! The same program over every device, chosen by a type and by a name.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use dapple_flow::flow::{
    self, Any, Append, Decode, Device, Disk, Encode, Frames, Lines, Listener, Name, Pipe, Queue, Sink, Source, Tcp,
    Unix, Written,
};
use dapple_sched::spawn;
use rustix::fs::{CWD, FileType, Mode};

use crate::both_ways;

/// Both ends of a device, as in a program that reads their names from a configuration.
struct Ends<D: Device> {
    sink: Sink<D>,
    source: Source<D>,
    /// The sink is closed before the source is read, because a source of stored data would
    /// otherwise be at its end.
    is_stored: bool,
    _dir: tempfile::TempDir,
}

fn fifo(dir: &tempfile::TempDir) -> io::Result<String> {
    let path = dir.path().join("fifo");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    Ok(path.to_str().expect("the bytes are text").to_owned())
}

async fn connected<D: Device>(listen: &str, dir: tempfile::TempDir) -> io::Result<Ends<D>> {
    let mut listener = Listener::<D>::bind(listen).await?;
    let name = listener.local_name()?;
    let sink = Sink::<D>::open(&name).await?;
    let source = listener.next().await.expect("a peer connects")?.source;
    Ok(Ends { sink, source, is_stored: false, _dir: dir })
}

async fn piped<D: Device>(name: &str, dir: tempfile::TempDir) -> io::Result<Ends<D>> {
    let source = Source::<D>::open(name).await?;
    let sink = Sink::<D>::open(name).await?;
    Ok(Ends { sink, source, is_stored: false, _dir: dir })
}

async fn stored<D: Device>(name: &str, dir: tempfile::TempDir) -> io::Result<Ends<D>> {
    let sink = Sink::<D>::open(name).await?;
    let source = Source::<D>::open(name).await?;
    Ok(Ends { sink, source, is_stored: true, _dir: dir })
}

/// One program, for all devices.
async fn carries<D: Device, C>(ends: Ends<D>, codec: C, items: Vec<<C as Encode>::Item>) -> io::Result<()>
where
    C: Decode<Item = <C as Encode>::Item> + Encode,
    <C as Encode>::Item: Clone + PartialEq + std::fmt::Debug,
{
    let sink = ends.sink.encode(codec.clone());
    let mut source = ends.source.decode(codec);
    let expected = items.clone();
    let writes = spawn(async move {
        let done = Queue::<Written>::new(10);
        let mut pending = 0;
        for item in items {
            if pending == 10 {
                done.pop().await.expect("the device is open").into_result()?;
                pending -= 1;
            }
            sink.submit(item, &done).await?;
            pending += 1;
        }
        sink.close().await
    });
    if ends.is_stored {
        writes.await.expect("the task does not panic")?;
    }
    for item in expected {
        assert_eq!(source.next().await.expect("there is more")?, item);
    }
    assert!(source.next().await.is_none() && source.next().await.is_none());
    Ok(())
}

async fn carries_everything<D: Device>(mut open: impl AsyncFnMut() -> io::Result<Ends<D>>) -> io::Result<()> {
    let lines = (0..2_000).map(|n| format!("line {n} {}", "x".repeat(n % 97)));
    carries(open().await?, Lines::new(200), lines.collect()).await?;
    // Larger than any buffer on the way, and empty ones.
    let frames = (0..20).map(|n| Bytes::from(vec![n as u8; n * n * 1_000]));
    carries(open().await?, Frames::new(1_000_000), frames.collect()).await
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("the sink has room")
}

fn path(dir: &tempfile::TempDir, name: &str) -> String {
    dir.path().join(name).to_str().expect("the bytes are text").to_owned()
}

#[test]
fn chosen_by_a_type() {
    both_ways(2, async || {
        carries_everything(async || connected::<Tcp>("127.0.0.1:0", dir()).await).await?;
        carries_everything(async || {
            let dir = dir();
            connected::<Unix>(&path(&dir, "socket"), dir).await
        })
        .await?;
        carries_everything(async || {
            let dir = dir();
            piped::<Pipe>(&fifo(&dir)?, dir).await
        })
        .await?;
        carries_everything(async || {
            let dir = dir();
            stored::<Disk>(&path(&dir, "file"), dir).await
        })
        .await
    });
}

#[test]
fn chosen_by_a_name() {
    both_ways(2, async || {
        carries_everything(async || connected::<Any>("tcp:127.0.0.1:0", dir()).await).await?;
        carries_everything(async || connected::<Any>("tcp:localhost:0", dir()).await).await?;
        carries_everything(async || {
            let dir = dir();
            connected::<Any>(&format!("unix:{}", path(&dir, "socket")), dir).await
        })
        .await?;
        carries_everything(async || {
            let dir = dir();
            piped::<Any>(&format!("pipe:{}", fifo(&dir)?), dir).await
        })
        .await?;
        carries_everything(async || {
            let dir = dir();
            stored::<Any>(&format!("file:{}", path(&dir, "file")), dir).await
        })
        .await
    });
}

#[test]
fn a_file_is_emptied_or_continued() {
    both_ways(2, async || {
        let dir = dir();
        let path = path(&dir, "file");
        for (name, text, expected) in [
            (format!("file:{path}"), "first", "first"),
            (format!("append:{path}"), ", second", "first, second"),
            (format!("append:{path}"), "!", "first, second!"),
            (format!("file:{path}"), "new", "new"),
        ] {
            let sink = Sink::<Any>::open(&name).await?;
            sink.write(text).await?;
            sink.sync().await?;
            assert_eq!(std::fs::read_to_string(&path)?, expected);
        }
        let sink = Sink::<Append>::open(&path).await?;
        sink.write("er").await?;
        let file = dapple_io::fs::File::open(&path).await?;
        assert_eq!(Disk::source(file, 1).next().await.expect("the file exists")?, "ewer");
        Ok(())
    });
}

#[test]
fn bad_names_say_what_is_wrong() {
    both_ways(1, async || {
        for (name, says) in [
            ("", "names no device"),
            ("nonsense", "tcp:HOST:PORT"),
            ("http://example.com", "no kind of device"),
            ("tcp:", "no port"),
            ("tcp:127.0.0.1", "no port"),
            ("tcp::80", "no valid host"),
            ("tcp:127.0.0.1:http", "not a number"),
            ("tcp:127.0.0.1:65536", "not a number"),
            ("tcp:::1:80", "[::1]:80"),
            ("unix:", "no path"),
            ("file:", "no path"),
            ("file:/a\0b", "zero byte"),
            ("pipe:/", "mkfifo"),
            ("pipe:/no/such/pipe", "/no/such/pipe"),
            ("file:/no/such/folder/file", "/no/such/folder/file"),
        ] {
            for error in [Source::<Any>::open(name).await.err(), Sink::<Any>::open(name).await.err()] {
                let error = error.expect("it cannot be opened");
                assert!(error.to_string().contains(says), "{name}: {error}");
            }
        }
        let dir = dir();
        for name in ["append:/tmp/x", "unix:/no/such/socket"] {
            assert!(Source::<Any>::open(name).await.unwrap_err().to_string().contains('`'));
        }
        for name in [format!("file:{}", path(&dir, "f")), format!("pipe:{}", fifo(&dir)?)] {
            assert_eq!(flow::connect::<Any>(&name).await.unwrap_err().kind(), io::ErrorKind::Unsupported);
            assert_eq!(Listener::<Any>::bind(&name).await.unwrap_err().kind(), io::ErrorKind::Unsupported);
        }
        // Without the kind, which the type says.
        assert!(Source::<Tcp>::open("127.0.0.1").await.unwrap_err().to_string().contains("no port"));
        // A closed listener leaves its path.
        let socket = path(&dir, "socket");
        drop(Listener::<Unix>::bind(&socket).await?);
        let error = Listener::<Unix>::bind(&socket).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("remove it"), "{error}");
        let name: Name = "tcp:localhost:80".parse().expect("the path is a socket");
        assert_eq!((name.to_string().as_str(), name.kind(), name.rest()), ("tcp:localhost:80", "tcp", "localhost:80"));
        Ok(())
    });
}

/// Either side of a FIFO may be first.
#[test]
fn a_fifo_waits_for_its_other_side() {
    both_ways(2, async || {
        let dir = dir();
        let name = fifo(&dir)?;
        let mut source = Source::<Pipe>::open(&name).await?;
        let early = source.next_timeout(Duration::from_millis(20)).await.expect("the source is not at its end");
        assert_eq!(early.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let sink = Sink::<Pipe>::open(&name).await?;
        sink.write("x").await?;
        assert_eq!(source.next().await.expect("it came")?, "x");
        drop((source, sink));
        let waits = spawn({
            let name = name.clone();
            async move { Sink::<Pipe>::open(&name).await }
        });
        dapple_io::time::sleep(Duration::from_millis(20)).await;
        assert!(!waits.is_finished());
        let mut source = Source::<Pipe>::open(&name).await?;
        let sink = waits.await.expect("the task does not panic")?;
        sink.write("y").await?;
        drop(sink);
        assert_eq!(source.next().await.expect("it came")?, "y");
        assert!(source.next().await.is_none());
        Ok(())
    });
}

/// A relay: a source chained to a sink, for any devices.
#[test]
fn a_source_flows_into_a_sink() {
    both_ways(2, async || {
        let dir = dir();
        let (from, to) = (path(&dir, "from"), path(&dir, "to"));
        let data: Vec<u8> = (0..3_000_000u32).map(|n| (n >> 3) as u8).collect();
        std::fs::write(&from, &data)?;
        let mut listener = Listener::<Any>::bind("tcp:127.0.0.1:0").await?;
        let out = Sink::<Any>::open(&listener.local_name()?).await?;
        let file = Source::<Any>::open(&format!("file:{from}")).await?;
        let sends = file.chain(flow::CloseAtEnd(out));
        let back = Sink::<Any>::open(&format!("file:{to}")).await?;
        let connection = listener.next().await.expect("a peer connects")?;
        connection.source.chain(back.clone()).await.expect("nothing panics");
        back.close().await?;
        sends.await.expect("nothing panics");
        assert!(std::fs::read(&to)? == data);
        Ok(())
    });
}

/// Code for `futures` works.
#[test]
fn sinks_and_sources_are_those_of_futures() {
    both_ways(2, async || {
        let (mut sink, mut source) = flow::pipe()?;
        for n in 0..5u8 {
            std::future::poll_fn(|cx| Pin::new(&mut sink).as_mut().poll_ready_of(cx)).await?;
            futures_sink::Sink::start_send(Pin::new(&mut sink), vec![n; 3].into())?;
        }
        std::future::poll_fn(|cx| futures_sink::Sink::poll_flush(Pin::new(&mut sink), cx)).await?;
        let mut read = Vec::new();
        while read.len() < 15 {
            let next = std::future::poll_fn(|cx| futures_core::Stream::poll_next(Pin::new(&mut source), cx)).await;
            read.extend_from_slice(&next.expect("there is more")?);
        }
        assert!(read.chunks(3).map(|chunk| chunk[0]).eq(0..5));
        std::future::poll_fn(|cx| futures_sink::Sink::poll_close(Pin::new(&mut sink), cx)).await?;
        assert!(source.next().await.is_none());
        let late = std::future::poll_fn(|cx| Pin::new(&mut sink).as_mut().poll_ready_of(cx)).await;
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        Ok(())
    });
}

trait PollReady {
    fn poll_ready_of(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<io::Result<()>>;
}

impl PollReady for Sink<Pipe> {
    fn poll_ready_of(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<io::Result<()>> {
        futures_sink::Sink::<Bytes>::poll_ready(self, cx)
    }
}
