//! The client: questions at fixed times.

use super::cluster::DOCUMENTS;
use serde::Deserialize;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One question and its answer.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The time at which it was due, from the begin of the run, and how long it took from there; seconds.
    pub(super) at_s: f64,
    pub(super) took_s: f64,
    /// The harvest of the answer; `None` without one.
    pub(super) harvest: Option<f64>,
    /// A wrong answer, in words.
    pub(super) problem: Option<String>,
}

/// The threads that ask.
pub(super) struct Questions {
    threads: Vec<JoinHandle<Vec<Asked>>>,
    is_over: Arc<AtomicBool>,
}

/// The part of an answer that counts.
#[derive(Deserialize)]
struct Answer {
    harvest: f64,
    found: u64,
}

/// Enough for all questions that wait for a frozen partition.
const THREADS: usize = 128;
const TIME_LIMIT: Duration = Duration::from_secs(10);

impl Questions {
    /// Asks `rate` questions a second. A thread takes the next one that is due, and waits for its answer.
    pub(super) fn start(front: SocketAddr, begin: Instant, parts: u32, rate: u32) -> Questions {
        let (is_over, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = |_| {
            let (is_over, next) = (is_over.clone(), next.clone());
            std::thread::spawn(move || {
                let mut all = Vec::new();
                while !is_over.load(SeqCst) {
                    let at_s = next.fetch_add(1, SeqCst) as f64 / f64::from(rate);
                    let due = begin + Duration::from_secs_f64(at_s);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    let reply = ask(front);
                    let took_s = due.elapsed().as_secs_f64();
                    all.push(Asked::new(at_s, took_s, reply, parts));
                }
                all
            })
        };
        Questions { threads: (0..THREADS).map(thread).collect(), is_over }
    }

    /// All questions, in the order of their times.
    pub(super) fn end(self) -> Vec<Asked> {
        self.is_over.store(true, SeqCst);
        let mut all: Vec<Asked> =
            self.threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect();
        all.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        all
    }
}

impl Asked {
    fn new(at_s: f64, took_s: f64, reply: Option<Answer>, parts: u32) -> Asked {
        let problem = reply.as_ref().and_then(|answer| {
            let expected = (answer.harvest * f64::from(parts)).round() as u64 * u64::from(DOCUMENTS);
            let (harvest, found) = (answer.harvest, answer.found);
            (found != expected)
                .then(|| format!("an answer with the harvest {harvest} found {found} documents, not {expected}"))
        });
        Asked { at_s, took_s, harvest: reply.map(|answer| answer.harvest), problem }
    }
}

/// Asks one question on a connection of its own; `None` without an answer.
fn ask(front: SocketAddr) -> Option<Answer> {
    let mut stream = TcpStream::connect_timeout(&front, TIME_LIMIT).ok()?;
    stream.set_read_timeout(Some(TIME_LIMIT)).ok()?;
    let request = format!("GET /search?q=color&json HTTP/1.1\r\nHost: {front}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    if !head.starts_with("HTTP/1.1 200 ") {
        return None;
    }
    serde_json::from_str(body.trim()).ok()
}
