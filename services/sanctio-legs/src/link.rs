//! A connection to a chat server, which is made again when it ends.
//!
//! The protocols, which are IRC and XMPP, have no I/O and no clock: they make bytes, and events of the bytes that arrive.
//! Each message that goes out is confirmed by the server before the next one to the same room follows. So a server that is
//! gone costs one message of each room, and not all that fit in the buffers of TCP.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use dapple::net::{TcpStream, WriteHalf};
use dapple::serve::bearer::Token;
use dapple::signal::{SIGINT, SIGTERM, signal};
use dapple::stage::Backoff;
use dapple::sync::{Mutex as Lock, Notify, oneshot, watch};
use dapple::task::{CancellationToken, First, Group, race};
use dapple::time::{Instant, sleep, timeout};

use crate::hub::{Hub, Leg, Message, Network};

/// The protocol of a chat server.
pub trait Protocol: Send + Sync + 'static {
    /// The beginning of its legs, without the colon.
    const NETWORK: &str;
    /// The state of one connection.
    type State: Send;

    /// A new connection, and its first bytes.
    fn open(&self) -> (Self::State, Vec<u8>);
    /// Takes bytes that arrived.
    ///
    /// # Errors
    /// The reason why the connection has to end.
    fn take(&self, state: &mut Self::State, bytes: &[u8]) -> Result<Vec<Event>, String>;
    /// Enters a room.
    fn join(&self, room: &str) -> Vec<u8>;
    /// Leaves a room.
    fn part(&self, room: &str) -> Vec<u8>;
    /// A message, and what makes the server confirm its number.
    fn say(&self, room: &str, number: u64, name: &str, text: &str) -> Vec<u8>;
    /// Bytes to which the server has to say something.
    fn ping(&self) -> Vec<u8>;
    /// The last bytes of a connection.
    fn leave(&self) -> Vec<u8>;
}

/// The meaning of a server's bytes.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// Rooms may be joined.
    Ready,
    /// The protocol demands this answer.
    Answer(Vec<u8>),
    /// The gateway is in this room.
    In(String),
    /// The gateway is not in this room, for this reason.
    Out(String, String),
    /// Something was said in a room.
    Said {
        /// The room.
        room: String,
        /// The name of the speaker there.
        speaker: String,
        /// The words.
        text: String,
        /// The id that the network gave it.
        id: Option<String>,
    },
    /// The server has shown the message of this number.
    Shown(u64),
}

/// A connection to a chat server.
struct Link<P> {
    protocol: P,
    address: String,
    /// The rooms that the gateway is in.
    rooms: watch::Sender<BTreeSet<String>>,
    /// Notified when other rooms are wanted.
    changed: Notify,
    writer: Lock<Option<WriteHalf<TcpStream>>>,
    /// The messages that wait for their confirmation.
    waiting: Mutex<HashMap<u64, oneshot::Sender<()>>>,
    numbers: AtomicU64,
}

impl<P: Protocol> Link<P> {
    fn new(protocol: P, address: String) -> Link<P> {
        // Numbers go on after a restart, so that no late echo confirms another message, and no id repeats.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (rooms, numbers) = (watch::Sender::new(BTreeSet::new()), AtomicU64::new(now.as_micros() as u64));
        let (writer, waiting) = (Lock::new(None), Mutex::default());
        Link { protocol, address, rooms, changed: Notify::new(), writer, waiting, numbers }
    }

    /// Keeps the connection until it is to leave.
    async fn run(&self, hub: &Hub, leaving: &CancellationToken) {
        let backoff = Backoff::new(RETRY_WAIT_MIN, RETRY_WAIT_MAX).jitter(0.0);
        let mut failures = 0;
        loop {
            let begin = Instant::now();
            let ended = race(leaving.cancelled(), self.session(hub)).await;
            if let First::Left(()) = ended {
                let _ = self.send(&self.protocol.leave()).await;
            }
            self.rooms.send_replace(BTreeSet::new());
            let mut writer = self.writer.lock().await;
            // After this, no message begins to wait.
            *writer = None;
            self.waiting().clear();
            drop(writer);
            let First::Right(Err(error)) = ended else { return };
            failures = if begin.elapsed() > RETRY_WAIT_MAX { 0 } else { failures + 1 };
            let wait = backoff.wait(failures, 0.0);
            eprintln!("{} {}: {error}; next attempt in {wait:?}", P::NETWORK, self.address);
            race(leaving.cancelled(), sleep(wait)).await;
        }
    }

    async fn session(&self, hub: &Hub) -> Result<(), String> {
        let connected = timeout(ANSWER_MAX, TcpStream::connect(&*self.address)).await;
        let stream = connected.map_err(|_| "no answer")?.map_err(|error| error.to_string())?;
        let (reader, writer) = stream.into_split();
        *self.writer.lock().await = Some(writer);
        let (mut state, hello) = self.protocol.open();
        self.send(&hello).await?;
        let (mut buf, mut is_ready, mut is_silent) = (vec![0; 16 << 10], false, false);
        let mut tick = Instant::now() + TICK;
        loop {
            let left = tick.saturating_duration_since(Instant::now());
            let len = match race(self.changed.notified(), timeout(left, reader.read(&mut buf))).await {
                First::Right(Ok(len)) => len.map_err(|error| error.to_string())?,
                First::Right(Err(_)) if is_silent || !is_ready => return Err("the server is silent".to_owned()),
                First::Right(Err(_)) => {
                    (is_silent, tick) = (true, Instant::now() + TICK);
                    self.send(&self.protocol.ping()).await?;
                    self.enter(hub).await?;
                    continue;
                }
                First::Left(()) if is_ready => {
                    self.enter(hub).await?;
                    continue;
                }
                First::Left(()) => continue,
            };
            if len == 0 {
                return Err("the server closed the connection".to_owned());
            }
            is_silent = false;
            for event in self.protocol.take(&mut state, &buf[..len])? {
                match event {
                    Event::Ready => {
                        is_ready = true;
                        self.enter(hub).await?;
                    }
                    Event::Answer(bytes) => self.send(&bytes).await?,
                    Event::In(room) => self.rooms.send_modify(|rooms| _ = rooms.insert(room)),
                    Event::Out(room, why) => {
                        eprintln!("{} {}: not in {room}: {why}", P::NETWORK, self.address);
                        self.rooms.send_modify(|rooms| _ = rooms.remove(&room));
                    }
                    Event::Said { room, speaker, text, id } => self.hear(hub, &room, &speaker, &text, id).await,
                    Event::Shown(number) => {
                        let waiting = self.waiting().remove(&number);
                        let _ = waiting.map(|waiting| waiting.send(()));
                    }
                }
            }
        }
    }

    /// Joins the rooms that are wanted, and leaves those that are not.
    async fn enter(&self, hub: &Hub) -> Result<(), String> {
        let wanted: BTreeSet<String> = hub.legs().iter().map(|leg| leg.place.clone()).collect();
        let rooms = self.rooms.borrow().clone();
        for room in wanted.difference(&rooms) {
            self.send(&self.protocol.join(room)).await?;
        }
        for room in rooms.difference(&wanted) {
            self.send(&self.protocol.part(room)).await?;
            self.rooms.send_modify(|rooms| _ = rooms.remove(room));
        }
        Ok(())
    }

    /// Tells the hub what was said, also one that is away for a moment.
    async fn hear(&self, hub: &Hub, room: &str, speaker: &str, text: &str, id: Option<String>) {
        let id = id.unwrap_or_else(|| self.numbers.fetch_add(1, Relaxed).to_string());
        let legs: Vec<Leg> = hub.legs().iter().filter(|leg| leg.place == room).cloned().collect();
        let begin = Instant::now();
        for leg in legs {
            while let Err(problem) = hub.say(&leg, speaker, text, &id).await {
                if problem.status.is_some_and(|status| status.is_client_error()) || begin.elapsed() > HUB_AWAY_MAX {
                    eprintln!("{} {}: a message for {} is lost: {}", P::NETWORK, self.address, leg.talk, problem.text);
                    break;
                }
                sleep(RETRY_WAIT_MIN).await;
            }
        }
    }

    async fn send(&self, bytes: &[u8]) -> Result<(), String> {
        write(&*self.writer.lock().await, bytes).await
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<()>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Protocol> Network for Link<P> {
    /// Says something in a room, when the gateway is there.
    async fn deliver(&self, hub: &Hub, leg: &Leg, message: &Message) -> Result<(), String> {
        let writer = loop {
            // The sender lives as long as this link.
            let _ = self.rooms.subscribe().wait_for(|rooms| rooms.contains(&leg.place)).await;
            let writer = self.writer.lock().await;
            if writer.is_some() && self.rooms.borrow().contains(&leg.place) {
                break writer;
            }
        };
        if !hub.claim(leg, message).await? {
            return Ok(());
        }
        let (shown, is_shown) = oneshot::channel();
        let number = self.numbers.fetch_add(1, Relaxed);
        self.waiting().insert(number, shown);
        let sent = write(&writer, &self.protocol.say(&leg.place, number, &message.name, &message.text)).await;
        drop(writer);
        let outcome = match sent {
            Ok(()) => timeout(ANSWER_MAX, is_shown).await.map_err(|_| "the server does not confirm it".to_owned()),
            Err(error) => Err(error),
        };
        self.waiting().remove(&number);
        if let Err(why) = outcome.and_then(|shown| shown.map_err(|_| "the connection ended".to_owned())) {
            let Message { position, .. } = message;
            eprintln!("{} {}: message {position} of {} may be lost: {why}", P::NETWORK, self.address, leg.talk);
        }
        Ok(())
    }

    fn changed(&self) {
        self.changed.notify_one();
    }
}

/// Carries the messages of a hub by a protocol until SIGTERM or SIGINT.
///
/// # Errors
/// The program cannot start.
pub async fn carry<P: Protocol>(
    protocol: P,
    address: String,
    hub: &str,
    token_file: Option<PathBuf>,
) -> Result<(), Box<dyn Error>> {
    let mut signals = (signal(SIGTERM)?, signal(SIGINT)?);
    let hub = Hub::new(P::NETWORK, hub, token_file.map(Token::from_file).transpose()?)?;
    let (link, connection, deliveries) = (Arc::new(Link::new(protocol, address)), Group::new(), Group::new());
    let (own, own_hub, leaving) = (link.clone(), hub.clone(), connection.token().clone());
    connection.spawn(async move { own.run(&own_hub, &leaving).await }).await;
    deliveries.spawn(hub.clone().carry(link)).await;
    race(signals.0.recv(), signals.1.recv()).await;
    hub.ending.cancel();
    deliveries.all_ended().await;
    connection.token().cancel();
    let _ = timeout(LEAVE_MAX, connection.all_ended()).await;
    Ok(())
}

async fn write(writer: &Option<WriteHalf<TcpStream>>, bytes: &[u8]) -> Result<(), String> {
    let Some(writer) = writer else { return Err("there is no connection".to_owned()) };
    let written = timeout(ANSWER_MAX, writer.write_all(bytes)).await;
    written.map_err(|_| "the server takes nothing")?.map_err(|error| error.to_string())
}

const RETRY_WAIT_MIN: Duration = Duration::from_millis(250);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(60);
const LEAVE_MAX: Duration = Duration::from_secs(2);
/// Messages wait for this long for a hub that does not answer.
const HUB_AWAY_MAX: Duration = Duration::from_secs(60);
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// The server is asked, and rooms are joined again, every so often.
const TICK: Duration = Duration::from_secs(20);
