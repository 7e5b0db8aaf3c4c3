//! A connection of the server: receives tasks, and sends answers in the order in which they are
//! ready.
//!
//! A semaphore bounds the unanswered tasks, and the answers waiting to be written, because an
//! answer keeps its permit until it is written. The budget of all connections bounds their memory.
//! When either is used up, the server stops reading.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use dapple::net::{TcpStream, WriteHalf};
use dapple::stage::{Reason, Refused};
use dapple::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use dapple::time::timeout;
use dapple_serve::host::EndStage;

use super::budget::{Budget, Share};
use super::frame::{ErrorCode, Frame, Malformed, VERSION};
use super::frames::{End, Frames};
use super::signer::{Failure, Signer, Task};
use dapple::task::{First, race};

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) signer: Signer,
    pub(super) budget: Budget,
    pub(super) task_bytes_max: u32,
    pub(super) in_flight_max: u32,
    pub(super) frame_timeout: Duration,
    pub(super) idle: Duration,
}

/// A frame for the writer, and the place that it frees.
type Outgoing = (Frame, AnswerPermit);

/// An answer's holdings until it is written: its permit, and its share of the memory.
#[derive(Debug, Default)]
struct AnswerPermit {
    _in_flight: Option<OwnedSemaphorePermit>,
    _share: Share,
}

/// Serves a connection until it ends, or `stage` ends it: then it answers accepted tasks, and
/// refuses new ones.
pub(super) async fn serve(stream: TcpStream, service: Arc<Service>, stage: &EndStage) {
    let (read, write) = stream.into_split();
    let (tx, rx) = mpsc::channel(CHANNEL_LEN);
    let writer = dapple::spawn(write_all(write, rx, service.frame_timeout));
    let mut connection = Connection {
        frames: Frames::new(read, HELLO_BYTES_MAX),
        in_flight: Arc::new(Semaphore::new(service.in_flight_max as usize)),
        share: Share::default(),
        service,
        tx,
    };
    let ended = match connection.greet(stage).await {
        Ok(()) => connection.take_tasks(stage).await,
        Err(ended) => Err(ended),
    };
    if let Err(malformed) = ended.or_else(told) {
        connection.say_last(malformed).await;
    }
    let Connection { mut frames, tx, .. } = connection;
    drop(tx);
    // The writer ends when all accepted tasks are answered.
    if writer.await.is_ok_and(|is_written| is_written) {
        let _ = timeout(LINGER, frames.discard()).await;
    }
}

struct Connection {
    frames: Frames,
    in_flight: Arc<Semaphore>,
    /// The share of the next frame, taken as soon as its length is known.
    share: Share,
    service: Arc<Service>,
    tx: mpsc::Sender<Outgoing>,
}

impl Connection {
    /// Exchanges the first frames.
    async fn greet(&mut self, stage: &EndStage) -> Result<(), End> {
        let limit = self.service.frame_timeout;
        let first = match race(timeout(limit, self.frames.next()), stage.finishing()).await {
            First::Left(first) => first.unwrap_or_else(|_| Err(late("the first frame did not arrive in time")))?,
            First::Right(_) => return Err(End::Finished),
        };
        match first {
            Frame::Hello { lowest, highest } if (lowest..=highest).contains(&VERSION) => {
                let Service { task_bytes_max, in_flight_max, .. } = *self.service;
                self.frames.allow(task_bytes_max as usize);
                self.say(Frame::Welcome { version: VERSION, task_bytes_max, in_flight_max }).await
            }
            Frame::Hello { lowest, highest } => {
                let text = format!("this server speaks version {VERSION}; the client speaks {lowest} to {highest}");
                Err(End::Malformed(Malformed { code: ErrorCode::Version, text }))
            }
            _ => Err(unexpected("the first frame has to be HELLO")),
        }
    }

    async fn take_tasks(&mut self, stage: &EndStage) -> Result<(), End> {
        loop {
            let (frame, share) = match race(self.next_frame(), stage.finishing()).await {
                First::Left(frame) => frame?,
                First::Right(_) => return self.refuse_until_answered().await,
            };
            let Frame::Task { id, body } = frame else { return Err(unexpected("clients send TASK only")) };
            // At the limit of unanswered tasks this one waits, and all later ones stay in the
            // network.
            let Ok(permit) = self.in_flight.clone().acquire_owned().await else { return Err(End::Finished) };
            let (body, share) = share.split(body);
            let place = AnswerPermit { _in_flight: Some(permit), _share: share };
            let (outcome, tx) = (self.service.signer.sign(Task { id, body }), self.tx.clone());
            drop(dapple::spawn(async move {
                let frame = match race(outcome, tx.closed()).await {
                    First::Left(result) => Frame::answer(id, result),
                    // The client has left: tasks that are not in service yet are cancelled.
                    First::Right(()) => return,
                };
                let _ = tx.send((frame, place)).await;
            }));
        }
    }

    /// After the signal to stop: refuses new tasks until all accepted ones are answered.
    async fn refuse_until_answered(&mut self) -> Result<(), End> {
        let (in_flight, all) = (self.in_flight.clone(), self.service.in_flight_max);
        let mut answered = std::pin::pin!(in_flight.acquire_many(all));
        loop {
            let (frame, _share) = match race(answered.as_mut(), self.next_frame()).await {
                First::Left(_) => return Ok(()),
                First::Right(frame) => frame?,
            };
            let Frame::Task { id, .. } = frame else { return Err(unexpected("clients send TASK only")) };
            let refused = Refused::new(Reason::Stopping, STOPPING_RETRY_AFTER);
            self.say(Frame::answer(id, Err(Failure::Refused(refused)))).await?;
        }
    }

    /// Returns the next frame, and its share of the memory. Waiting for that share does not count
    /// against the client.
    ///
    /// Cancel safe: the part of a frame that has arrived stays, and so does its share.
    async fn next_frame(&mut self) -> Result<(Frame, Share), End> {
        let limit = self.service.frame_timeout;
        if !self.frames.is_amid() {
            let begun = timeout(self.service.idle, self.frames.read_more()).await;
            begun.unwrap_or_else(|_| Err(late("no task arrived for too long")))?;
        }
        let len = timeout(limit, self.frames.length()).await.unwrap_or_else(|_| Err(late(TOO_SLOW)))?;
        if self.share.is_empty() {
            self.share = self.service.budget.take(len).await;
        }
        let frame = timeout(limit, self.frames.next()).await.unwrap_or_else(|_| Err(late(TOO_SLOW)))?;
        Ok((frame, std::mem::take(&mut self.share)))
    }

    /// Sends the reason why the connection ends, after all answers: the client gets nothing after
    /// it.
    async fn say_last(&self, Malformed { code, text }: Malformed) {
        let answered = self.in_flight.acquire_many(self.service.in_flight_max);
        let is_gone = matches!(race(answered, self.tx.closed()).await, First::Right(()));
        if is_gone || self.say(Frame::Error { code, text }).await.is_err() {
            tracing::debug!("the client left before it could be told why its connection ends");
        }
    }

    async fn say(&self, frame: Frame) -> Result<(), End> {
        self.tx.send((frame, AnswerPermit::default())).await.map_err(|_| End::Finished)
    }
}

/// Writes all ready frames together; returns `false` if the client does not take them.
async fn write_all(write: WriteHalf<TcpStream>, mut rx: mpsc::Receiver<Outgoing>, limit: Duration) -> bool {
    let (mut buf, mut batch) = (BytesMut::new(), Vec::new());
    while rx.recv_many(&mut batch, CHANNEL_LEN).await > 0 {
        buf.clear();
        batch.iter().for_each(|(frame, _)| frame.encode(&mut buf));
        match timeout(limit, write.write_all(&buf)).await {
            Ok(Ok(())) => batch.clear(),
            Ok(Err(_)) | Err(_) => {
                // This lets the reader notice too.
                let _ = write.shutdown(Shutdown::Both);
                return false;
            }
        }
    }
    true
}

/// The error frame for an end, if one can be sent.
fn told(end: End) -> Result<(), Malformed> {
    match end {
        End::Finished => Ok(()),
        End::Cut(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Err(Malformed { code: ErrorCode::Malformed, text: "the connection ended within a frame".to_owned() })
        }
        End::Cut(error) => {
            tracing::debug!(%error, "a connection was cut");
            Ok(())
        }
        End::Malformed(malformed) => Err(malformed),
    }
}

fn late(text: &str) -> End {
    End::Malformed(Malformed { code: ErrorCode::TimeOut, text: text.to_owned() })
}

fn unexpected(text: &str) -> End {
    End::Malformed(Malformed { code: ErrorCode::Malformed, text: text.to_owned() })
}

const TOO_SLOW: &str = "a frame did not arrive completely in time";

/// The most bytes in the first frame: far more than this version uses.
const HELLO_BYTES_MAX: usize = 64;

/// The most answers that wait for the writer; later tasks wait with their permit.
const CHANNEL_LEN: usize = 256;

/// How long the client may take for its last answers.
const LINGER: Duration = Duration::from_secs(1);

/// About how long a new server takes to start, if there is one.
const STOPPING_RETRY_AFTER: Duration = Duration::from_secs(1);
