//! An origin server for tests: a thread for each connection, and a closure that writes arbitrary
//! bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A running origin. It listens until the test ends.
pub(super) struct Origin {
    pub(super) port: u16,
    log: Arc<Mutex<Vec<Asked>>>,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    /// The lines after the last chunk.
    pub(super) trailers: Vec<String>,
    /// The number of its connection, and its own number among all requests, from 0.
    pub(super) connection: usize,
    pub(super) number: usize,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Origin {
    /// Starts an origin. `answer` writes to the stream; the connection stays open if it returns
    /// true.
    pub(super) fn start(answer: impl Fn(&Asked, &mut TcpStream) -> bool + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (answer, kept) = (Arc::new(answer), log.clone());
        let connections = AtomicUsize::new(0);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, log) = (answer.clone(), kept.clone());
                let connection = connections.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || serve(stream, connection, &log, &*answer));
            }
        });
        Origin { port, log }
    }

    /// Starts an origin with fixed answers.
    pub(super) fn of(answer: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Origin {
        Origin::start(move |asked, stream| stream.write_all(&answer(asked)).is_ok())
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.log.lock().unwrap().clone()
    }

    /// The number of requests so far.
    pub(super) fn count(&self) -> usize {
        self.log.lock().unwrap().len()
    }
}

fn serve(
    stream: TcpStream,
    connection: usize,
    log: &Mutex<Vec<Asked>>,
    answer: &dyn Fn(&Asked, &mut TcpStream) -> bool,
) {
    // An origin that receives no more requests is no longer needed.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(mut asked) = read(&mut reader) {
        asked.connection = connection;
        {
            let mut log = log.lock().unwrap();
            asked.number = log.len();
            log.push(asked.clone());
        }
        if !answer(&asked, reader.get_mut()) {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut words = head.split(' ').map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut asked = Asked { method, target, head, body: Vec::new(), trailers: Vec::new(), connection: 0, number: 0 };
    if asked.header("expect").is_some() {
        reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    if let Some(len) = asked.header("content-length") {
        asked.body = vec![0; len.parse().unwrap()];
        reader.read_exact(&mut asked.body).ok()?;
    } else if asked.header("transfer-encoding").is_some() {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let len = usize::from_str_radix(line.trim(), 16).ok()?;
            if len == 0 {
                break;
            }
            let start = asked.body.len();
            asked.body.resize(start + len, 0);
            reader.read_exact(&mut asked.body[start..]).ok()?;
            reader.read_exact(&mut [0; 2]).ok()?;
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            match line.trim_end() {
                "" => break,
                line => asked.trailers.push(line.to_owned()),
            }
        }
    }
    Some(asked)
}
