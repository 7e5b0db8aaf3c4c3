//! A connection of the client, with its share of the tasks in flight.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use dapple::net::{TcpStream, WriteHalf};
use dapple::sync::mpsc;
use dapple::time::{sleep, timeout, timeout_at};

use super::GRACE;
use super::tally::Tally;
use crate::digest::Secrets;
use crate::frame::{Frame, REPLY_BYTES_MAX, Signed, VERSION};
use crate::frames::{End, Frames};
use crate::signer::Kind;

/// The plan that all connections follow.
pub(super) struct Plan {
    pub(super) addrs: Vec<(String, u16)>,
    pub(super) task_bytes: usize,
    pub(super) end: Instant,
    pub(super) secrets: Option<Secrets>,
    pub(super) tally: Arc<Tally>,
}

/// Keeps `slots` tasks in flight over one connection until the end: to server `number` if possible,
/// otherwise to the next that answers.
pub(super) async fn drive(plan: Arc<Plan>, number: usize, slots: usize) {
    let mut pause = PAUSE_MIN;
    while Instant::now() < plan.end {
        let mut outcome = Ok(());
        for step in 0..plan.addrs.len() {
            let addr = &plan.addrs[(number + step) % plan.addrs.len()];
            // A connection to another server checks now and then whether its own is back.
            let until = if step == 0 { plan.end } else { plan.end.min(Instant::now() + AWAY_MAX) };
            outcome = match connect(addr).await {
                Ok(stream) => Session::new(&plan, stream, slots, number, until).run().await,
                Err(why) => Err(format!("connecting to {}: {why}", shown(addr))),
            };
            match &outcome {
                Ok(()) => break,
                Err(text) => plan.tally.connection_error(text.clone()),
            }
        }
        if outcome.is_ok() {
            pause = PAUSE_MIN;
            continue;
        }
        sleep(pause.min(plan.end.saturating_duration_since(Instant::now()))).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Connects to any address of a host that answers.
///
/// # Errors
///
/// The reason why none answers.
pub(super) async fn connect((host, port): &(String, u16)) -> Result<TcpStream, String> {
    match timeout(CONNECT_MAX, TcpStream::connect((host.as_str(), *port))).await {
        Ok(connected) => connected.map_err(|error| error.to_string()),
        Err(_) => Err(format!("it took longer than {CONNECT_MAX:?}")),
    }
}

/// An address in command-line form.
pub(super) fn shown((host, port): &(String, u16)) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// One connection.
struct Session<'p> {
    plan: &'p Plan,
    frames: Frames,
    tx: mpsc::Sender<Frame>,
    slots: usize,
    /// The time after which no task is sent.
    until: Instant,
    pending: HashMap<u64, (Instant, Bytes)>,
    /// When the slots of refused tasks may be used again.
    resting: BinaryHeap<Reverse<Instant>>,
    next_id: u64,
    number: u64,
}

impl<'p> Session<'p> {
    fn new(plan: &'p Plan, stream: TcpStream, slots: usize, number: usize, until: Instant) -> Session<'p> {
        let (read, write) = stream.into_split();
        // One for each slot, and the first frame.
        let (tx, rx) = mpsc::channel(slots + 1);
        drop(dapple::spawn(write_all(write, rx)));
        let frames = Frames::new(read, REPLY_BYTES_MAX);
        let (pending, resting) = (HashMap::with_capacity(slots), BinaryHeap::new());
        Session { plan, frames, tx, slots, until, pending, resting, next_id: 0, number: number as u64 }
    }

    /// Runs the session. `Err` says what ended it too early.
    async fn run(mut self) -> Result<(), String> {
        self.exchange().await
    }

    async fn exchange(&mut self) -> Result<(), String> {
        self.send(Frame::Hello { lowest: VERSION, highest: VERSION }).await?;
        let welcome = timeout(GRACE, self.frames.next()).await.map_err(|_| "the server sent no greeting".to_owned())?;
        match welcome.map_err(said)? {
            Frame::Welcome { version, .. } if version != VERSION => {
                return Err(format!("the server speaks version {version}; this client speaks only {VERSION}"));
            }
            Frame::Welcome { task_bytes_max, .. } if (task_bytes_max as usize) < self.plan.task_bytes => {
                return Err(format!("the server accepts only tasks of up to {task_bytes_max} bytes"));
            }
            Frame::Welcome { .. } => {}
            Frame::Error { text, .. } => return Err(format!("the server says: {text}")),
            other => return Err(format!("the server sent an unexpected greeting: {other:?}")),
        }
        for _ in 0..self.slots {
            self.send_task().await?;
        }
        loop {
            let now = Instant::now();
            while self.resting.peek().is_some_and(|Reverse(due)| *due <= now) {
                self.resting.pop();
                self.send_task().await?;
            }
            if now >= self.until && self.pending.is_empty() {
                return Ok(());
            }
            let wake = match self.resting.peek() {
                Some(Reverse(due)) if now < self.until => (*due).min(self.until),
                _ if now < self.until => self.until,
                _ => self.until + GRACE,
            };
            match timeout_at(wake, self.frames.next()).await {
                Ok(frame) => self.take(frame.map_err(said)?).await?,
                Err(_) if Instant::now() >= self.until + GRACE => {
                    return Err("answers did not arrive in time".to_owned());
                }
                Err(_) => {}
            }
        }
    }

    async fn take(&mut self, frame: Frame) -> Result<(), String> {
        let now = Instant::now();
        match frame {
            Frame::Signed { id, signed } => {
                let (sent, body) = self.answered(id)?;
                if self.is_right(&body, &signed) {
                    self.plan.tally.signed(sent, now);
                } else {
                    self.plan.tally.counts().wrong += 1;
                }
                self.send_task().await
            }
            Frame::Refused { id, retry_after_ms, .. } => {
                self.answered(id)?;
                self.plan.tally.counts().refused += 1;
                self.resting.push(Reverse(now + Duration::from_millis(u64::from(retry_after_ms))));
                Ok(())
            }
            Frame::Failed { id, code, text } => {
                self.answered(id)?;
                {
                    let mut counts = self.plan.tally.counts();
                    counts.failed += 1;
                    counts.log_full += u64::from(Kind::is_log_full(code));
                    counts.last_error = Some(text);
                }
                self.resting.push(Reverse(now + AFTER_FAILURE));
                Ok(())
            }
            Frame::Error { text, .. } => Err(format!("the server says: {text}")),
            other => Err(format!("the server sent {other:?}")),
        }
    }

    fn answered(&mut self, id: u64) -> Result<(Instant, Bytes), String> {
        self.pending.remove(&id).ok_or_else(|| format!("the server answered a task {id} that was not sent"))
    }

    fn is_right(&self, body: &[u8], signed: &Signed) -> bool {
        let Some(secrets) = &self.plan.secrets else { return true };
        secrets.first(body) == signed.first && secrets.second(body) == signed.second
    }

    /// Sends the next task, unless the time is over.
    async fn send_task(&mut self) -> Result<(), String> {
        let now = Instant::now();
        if now >= self.until {
            return Ok(());
        }
        let id = self.next_id;
        self.next_id += 1;
        let body = task(self.number, id, self.plan.task_bytes);
        self.pending.insert(id, (now, body.clone()));
        self.send(Frame::Task { id, body }).await
    }

    async fn send(&self, frame: Frame) -> Result<(), String> {
        self.tx.send(frame).await.map_err(|_| "the connection was cut while a task was sent".to_owned())
    }
}

impl Drop for Session<'_> {
    /// // Also if dropped halfway: the fate of these tasks stays unknown.
    fn drop(&mut self) {
        self.plan.tally.counts().lost += self.pending.len() as u64;
    }
}

/// Bytes that differ from task to task.
fn task(number: u64, id: u64, len: usize) -> Bytes {
    let seed: Vec<u8> = [number.to_be_bytes(), id.to_be_bytes()].concat();
    let mut body = Vec::with_capacity(len + seed.len());
    while body.len() < len {
        body.extend_from_slice(&seed);
    }
    body.truncate(len);
    body.into()
}

async fn write_all(write: WriteHalf<TcpStream>, mut rx: mpsc::Receiver<Frame>) {
    let (mut buf, mut batch) = (BytesMut::new(), Vec::new());
    while rx.recv_many(&mut batch, WRITE_FRAMES_MAX).await > 0 {
        buf.clear();
        batch.drain(..).for_each(|frame| frame.encode(&mut buf));
        if write.write_all(&buf).await.is_err() {
            return;
        }
    }
}

fn said(end: End) -> String {
    match end {
        End::Finished => "the server closed the connection".to_owned(),
        End::Cut(error) => format!("the connection was cut: {error}"),
        End::Malformed(malformed) => format!("the server does not speak this protocol: {}", malformed.text),
    }
}

const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long tasks go to another server before the connection tries its own again.
const AWAY_MAX: Duration = Duration::from_secs(1);

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A log that is full now will still be full a moment later.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

const WRITE_FRAMES_MAX: usize = 64;
