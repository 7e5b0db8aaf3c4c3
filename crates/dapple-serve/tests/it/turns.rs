//! How much of large replies is written before a newcomer has its small reply. Counted in bytes,
//! not in time.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use dapple::serve::Body;
use dapple::{Color, Connection};
use http::{Request, Response};
use hyper::body::{Frame, SizeHint};
use tower::service_fn;

use crate::elsewhere::listener;
use crate::support::eventually;

/// A client that sends its request on demand.
struct Client {
    path: &'static str,
    /// How much it takes of the reply.
    takes: u64,
    taken: AtomicU64,
    read: Mutex<Read>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Read {
    may_ask: bool,
    has_asked: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Counts {
    /// Clients with a request that the server waits for.
    silent: AtomicUsize,
    /// Clients that have taken all that they will.
    stalled: AtomicUsize,
    /// How often the server visited a connection with a large reply.
    looks: AtomicU64,
    /// Bytes of large replies.
    large: AtomicU64,
    /// How many there were when the small reply came.
    large_before_small: Mutex<Option<u64>>,
}

impl Client {
    fn ask(&self) {
        let mut read = self.read.lock().unwrap();
        read.may_ask = true;
        let waker = read.waker.take();
        drop(read);
        waker.expect("the server waits for the request").wake();
    }
}

/// The server's end.
struct End(Arc<Client>);

impl Connection for End {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut read = self.0.read.lock().unwrap();
        if read.may_ask && !std::mem::replace(&mut read.has_asked, true) {
            let request = format!("GET {} HTTP/1.1\r\nhost: a\r\n\r\n", self.0.path);
            buf[..request.len()].copy_from_slice(request.as_bytes());
            return Poll::Ready(Ok(request.len()));
        }
        if read.waker.replace(cx.waker().clone()).is_none() && !read.has_asked {
            self.0.counts.silent.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Pending
    }

    fn poll_write(&self, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let counts = &self.0.counts;
        if self.0.path != LARGE {
            counts.large_before_small.lock().unwrap().get_or_insert(counts.large.load(Ordering::Relaxed));
            return Poll::Ready(Ok(buf.len()));
        }
        counts.looks.fetch_add(1, Ordering::Relaxed);
        let len = (buf.len() as u64).min(self.0.takes - self.0.taken.load(Ordering::Relaxed));
        self.0.taken.fetch_add(len, Ordering::Relaxed);
        counts.large.fetch_add(len, Ordering::Relaxed);
        if len == 0 {
            counts.stalled.fetch_add(1, Ordering::Relaxed);
            return Poll::Pending;
        }
        Poll::Ready(Ok(len as usize))
    }

    fn poll_end(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// So many bytes, in pieces.
struct Long(u64);

impl hyper::body::Body for Long {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let len = self.0.min(PIECE.len() as u64);
        self.0 -= len;
        Poll::Ready((len > 0).then(|| Ok(Frame::data(Bytes::from_static(&PIECE[..len as usize])))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

const LARGE: &str = "/large";
static PIECE: [u8; 16 << 10] = [b'x'; 16 << 10];

/// A server with one worker, and clients: this many that want a large reply and read this much of
/// it, and at the end one that wants a small reply.
struct Scene {
    runtime: dapple::Runtime,
    counts: Arc<Counts>,
    clients: Vec<Arc<Client>>,
}

impl Scene {
    fn new(large: usize, takes: u64) -> Scene {
        let counts = Arc::new(Counts::default());
        let runtime = dapple::builder().workers(1).build().unwrap();
        let (connect, memory) = listener();
        let service = service_fn(|request: Request<Body>| async move {
            let len = if request.uri().path() == LARGE { 1 << 40 } else { 12 };
            Ok::<_, Infallible>(Response::new(Long(len)))
        });
        let hour = Duration::from_secs(3_600);
        let server = dapple::serve(memory, service).no_admission().head_timeout(hour).pause_timeout(hour);
        drop(runtime.spawn(async move { server.await }));
        let client = |path| {
            let (read, taken) = (Mutex::default(), AtomicU64::new(0));
            Arc::new(Client { path, takes, taken, read, counts: counts.clone() })
        };
        let clients: Vec<_> = std::iter::repeat_n(LARGE, large).chain(["/small"]).map(client).collect();
        for client in &clients {
            runtime.block_on(async { connect.send(End(client.clone())).await.map_err(drop).unwrap() });
        }
        eventually("a request is waited for", || counts.silent.load(Ordering::Relaxed) == clients.len());
        Scene { runtime, counts, clients }
    }

    fn newcomer(&self) -> &Client {
        &self.clients[self.clients.len() - 1]
    }

    /// Waits for the small reply; then returns how many bytes of large ones came before.
    fn large_before_small(&self) -> u64 {
        let before = || *self.counts.large_before_small.lock().unwrap();
        eventually("the newcomer has its reply", || before().is_some());
        before().unwrap()
    }
}

/// All requests are there when the server begins to look, the small one last. Before that comes the first turn of each large reply, with
/// 16 KB, and a turn of 128 KB between each two of them. A turn ends with the write that fills it.
#[test]
fn a_small_reply_waits_for_the_heads_of_large_ones_and_not_for_their_bodies() {
    for large in [20, 200] {
        let scene = Scene::new(large, u64::MAX);
        // The one worker is kept until all have asked, so that the order is theirs.
        let (go_on, kept) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        scene.runtime.block_on(async {
            Color::new().post(move || {
                begin.send(()).unwrap();
                let _ = kept.recv();
            });
        });
        begun.recv().unwrap();
        scene.clients.iter().for_each(|client| client.ask());
        drop(go_on);
        let each = scene.large_before_small() / large as u64;
        scene.runtime.shutdown(Duration::ZERO);
        assert!(each <= (16 + 128 + 32) << 10, "{large} large replies: {each} bytes of each came before the small one");
    }
}

#[test]
fn clients_that_take_nothing_more_cost_a_newcomer_nothing() {
    for large in [50, 500] {
        let scene = Scene::new(large, 100_000);
        scene.clients[..large].iter().for_each(|client| client.ask());
        eventually("all have stalled", || scene.counts.stalled.load(Ordering::Relaxed) == large);
        let (bytes, looks) = (scene.counts.large.load(Ordering::Relaxed), scene.counts.looks.load(Ordering::Relaxed));
        scene.newcomer().ask();
        assert_eq!(scene.large_before_small(), bytes, "nothing more is written to those that have stalled");
        assert_eq!(scene.counts.looks.load(Ordering::Relaxed), looks, "nor are they looked at");
        scene.runtime.shutdown(Duration::ZERO);
    }
}
