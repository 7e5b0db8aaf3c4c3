//! Running out of descriptors. The limit applies to the process, so the test runs itself in a
//! child.

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dapple_io::net::TcpListener;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::{LIMIT, channel_callback, runtime, wait_until};

const CHILD: &str = "DAPPLE_IO_TEST_SHORTAGE";

#[test]
fn accepting_pauses_without_descriptors_and_recovers() {
    if std::env::var_os(CHILD).is_some() {
        return in_child();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["shortage::accepting_pauses_without_descriptors_and_recovers"])
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{output}");
    assert!(output.contains("1 passed"), "{output}");
}

fn in_child() {
    tracing::subscriber::set_global_default(Log).unwrap();
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let mut clients: Vec<_> = (0..4).map(|_| TcpStream::connect(addr).unwrap()).collect();
    // A connection for later, so that it needs no descriptor then.
    let late = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();

    let full = getrlimit(Resource::Nofile);
    // The lowest free number is the only one that the limit leaves.
    let free = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let limit = |current| Rlimit { current, ..full };
    setrlimit(Resource::Nofile, limit(Some(free + 1))).unwrap();

    let (accepted, rx) = channel_callback();
    let _accepting = runtime.spawn(async move {
        loop {
            accepted.call(listener.accept().await.expect("a shortage is not an error").0);
        }
    });
    let first = rx.recv_timeout(LIMIT).unwrap();
    wait_until("the shortage is noticed", || lines(Level::WARN) == 1);

    // It does not spin: hardly any processor time passes during the pause.
    let (start, cpu_start) = (Instant::now(), cpu_time());
    while start.elapsed() < Duration::from_millis(350) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let busy = cpu_time() - cpu_start;
    assert!(busy < Duration::from_millis(100), "{busy:?} of work while paused");
    assert!(rx.try_recv().is_err());

    // A descriptor of the program is closed: accepting continues at once.
    drop(first);
    let second = rx.recv_timeout(LIMIT).unwrap();
    // Others are closed elsewhere: accepting continues after a pause.
    setrlimit(Resource::Nofile, limit(full.current)).unwrap();
    let _rest = [second, rx.recv_timeout(LIMIT).unwrap(), rx.recv_timeout(LIMIT).unwrap()];
    assert_eq!(lines(Level::WARN), 1, "says so once");

    // After a quiet second, the next connection ends the episode.
    late.connect(&addr.into()).unwrap();
    rx.recv_timeout(LIMIT).unwrap();
    wait_until("the end of the shortage is told", || {
        clients.push(TcpStream::connect(addr).unwrap());
        rx.recv_timeout(LIMIT).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        lines(Level::INFO) == 1
    });
    assert_eq!(lines(Level::WARN), 1);
}

/// Without a read of /proc, which would need a descriptor.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The log of the crate.
static LINES: Mutex<Vec<Level>> = Mutex::new(Vec::new());

pub(crate) fn lines(level: Level) -> usize {
    LINES.lock().unwrap().iter().filter(|line| **line == level).count()
}

pub(crate) struct Log;

struct Print;

impl Visit for Print {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        println!("{field}: {value:?}");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("dapple_io")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        span::Id::from_u64(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Print);
        LINES.lock().unwrap().push(*event.metadata().level());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
