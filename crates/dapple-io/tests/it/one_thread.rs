//! A callback program that was written for one thread, on several workers: it names no color and
//! shares its state by `Rc`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use dapple_io::event::{Registration, after, on_accept, on_connect};
use dapple_io::net::{TcpListener, TcpStream};
use dapple_sched::{Callback, Color, yield_now};

use crate::{LIMIT, runtime};

const CLIENTS: u8 = 5;
const REQUESTS: u8 = 20;

/// A server that counts the requests of its clients, those clients, and their results.
struct Program {
    total: Cell<u64>,
    by_client: RefCell<BTreeMap<u8, u8>>,
    replies: RefCell<BTreeMap<u8, Vec<u8>>>,
    open: Cell<u8>,
    accepting: RefCell<Option<Registration>>,
    output: Sender<String>,
}

impl Program {
    fn begin(output: Sender<String>) {
        let program = Rc::new(Program {
            total: Cell::new(0),
            by_client: RefCell::default(),
            replies: RefCell::default(),
            open: Cell::new(CLIENTS),
            accepting: RefCell::default(),
            output,
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let accepted = program.clone();
        let accepting = on_accept(listener, Callback::here(move |(stream, _)| accepted.converse(stream))).unwrap();
        *program.accepting.borrow_mut() = Some(accepting);
        for client in 0..CLIENTS {
            let program = program.clone();
            let begin = Callback::here(move |()| program.connect(client, addr));
            after(Duration::from_millis(u64::from(client % 3)), begin).unwrap().detach();
        }
    }

    /// Each byte is a request of the client of that number; the reply is how many that client has
    /// made.
    fn converse(self: &Rc<Program>, stream: TcpStream) {
        let program = self.clone();
        on_bytes(stream, move |stream, client| {
            let Some(client) = client else { return program.close() };
            let before = program.total.get();
            // A second thread in here would lose counts.
            std::thread::yield_now();
            program.total.set(before + 1);
            let mut by_client = program.by_client.borrow_mut();
            let requests = by_client.entry(client).or_default();
            *requests += 1;
            assert_eq!(stream.try_write(&[*requests]).unwrap(), 1);
        });
    }

    fn connect(self: &Rc<Program>, client: u8, addr: SocketAddr) {
        let program = self.clone();
        let connected = Callback::here(move |stream: std::io::Result<TcpStream>| {
            let stream = stream.unwrap();
            assert_eq!(stream.try_write(&[client]).unwrap(), 1);
            let program = program.clone();
            on_bytes(stream, move |stream, reply| {
                let Some(reply) = reply else { return };
                let mut replies = program.replies.borrow_mut();
                replies.entry(client).or_default().push(reply);
                match reply {
                    REQUESTS => stream.shutdown(std::net::Shutdown::Write).unwrap(),
                    _ => assert_eq!(stream.try_write(&[client]).unwrap(), 1),
                }
            });
        });
        on_connect(&addr.ip().to_string(), addr.port(), connected).unwrap().detach();
    }

    /// A client has left.
    fn close(&self) {
        self.open.set(self.open.get() - 1);
        if self.open.get() == 0 {
            self.accepting.borrow_mut().take();
            let output = format!("{} requests: {:?}, {:?}", self.total.get(), self.by_client, self.replies);
            self.output.send(output).unwrap();
        }
    }
}

/// Calls `each` with each byte that comes, and with `None` at the end, which closes the stream.
fn on_bytes(stream: TcpStream, each: impl Fn(&TcpStream, Option<u8>) + 'static) {
    let open = Rc::new(RefCell::new(None::<(TcpStream, Registration)>));
    let kept = open.clone();
    let readable = Callback::here(move |()| {
        let mut buf = [0; 16];
        let ended = {
            let open = open.borrow();
            let Some((stream, _)) = open.as_ref() else { return };
            loop {
                match stream.try_read(&mut buf) {
                    Ok(0) => break true,
                    Ok(len) => buf[..len].iter().for_each(|byte| each(stream, Some(*byte))),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        if ended && let Some((stream, _registration)) = open.take() {
            each(&stream, None);
        }
    });
    let registration = stream.on_readable(readable);
    *kept.borrow_mut() = Some((stream, registration));
}

/// The program's output, on this many workers, together with colored tasks on all of them.
fn output(workers: usize) -> String {
    let runtime = runtime(workers);
    let _entered = runtime.enter();
    let others = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..2 * workers)
        .map(|_| {
            let others = others.clone();
            Color::new().spawn(async move {
                for _ in 0..1_000 {
                    others.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
            })
        })
        .collect();
    let (tx, rx) = mpsc::channel();
    Color::pinned(workers - 1).post(move || Program::begin(tx));
    let output = rx.recv_timeout(6 * LIMIT).expect("the program ends");
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert_eq!(others.load(Ordering::Relaxed), 2_000 * workers as u64);
    output
}

#[test]
fn a_program_for_one_thread_puts_out_the_same_on_all_workers() {
    let alone = output(1);
    assert!(alone.starts_with("100 requests: RefCell { value: {0: 20, 1: 20,"), "{alone}");
    for workers in [2, 4] {
        assert_eq!(output(workers), alone, "on {workers} workers");
    }
}

#[test]
#[should_panic(expected = "only a pinned color keeps what is not `Send`")]
fn values_that_are_not_send_need_a_pinned_color() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let not_send = Rc::new(());
    Callback::here(move |()| drop(not_send.clone()));
}
