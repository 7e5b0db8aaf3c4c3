//! One connection: requests in, replies out, in order.

use std::future::{pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use dapple::task::{First, race};
use dapple::time::timeout;
use dapple_serve::host::{Connection, EndStage};

use super::Service;
use super::clients::Client;
use super::memory::Share;
use super::plan::Plan;
use super::pubsub::Message;
use super::reply::Reply;
use super::request::{Malformed, Requests};
use super::session::{Context, Session};

/// Waiting replies are sent before they take more bytes than this.
const REPLIES_LEN_MAX: usize = 64 << 10;
const CHUNK_LEN: usize = 16 << 10;
/// The time in which a client must take at least a part of the replies.
const WRITE_LIMIT: Duration = Duration::from_secs(60);

/// Serves one connection until its client ends it, breaks the protocol or does not read, or `stage` ends.
pub(super) async fn serve(
    stream: impl Connection,
    (addr, laddr): (Option<SocketAddr>, Option<SocketAddr>),
    service: &Service,
    stage: &EndStage,
) {
    let registered = service.clients.register(service.client_id(), addr, laddr);
    let client = &registered.client;
    let _ = race(client.killed.cancelled(), exchange(&stream, service, client, stage)).await;
    // Before the client sees the end.
    drop(registered);
    poll_fn(|cx| {
        stream.say_end(cx);
        Poll::Ready(())
    })
    .await;
}

async fn exchange(stream: &impl Connection, service: &Service, client: &Client, stage: &EndStage) {
    let mut session = Session::new(service, client);
    let (mut requests, mut buf, mut replies) = (Requests::default(), BytesMut::new(), Replies::new(service));
    let mut held = Share::new(&service.memory);
    let mut chunk = vec![0; CHUNK_LEN];
    loop {
        if answer(&mut session, &mut requests, &mut buf, &mut replies).await && buf.len() <= CHUNK_LEN {
            // The rest is in the memory of the requests before it, which may have been long.
            buf = BytesMut::from(&buf[..]);
        }
        if !held.set(buf.len() + session.kept_bytes()) {
            Reply::no_memory().encode(&mut replies.bytes, session.is_resp3);
            session.is_over = true;
        }
        deliver(&mut session, &mut replies.bytes);
        let was_full = replies.is_full();
        if !replies.bytes.is_empty() {
            let written = timeout(WRITE_LIMIT, write_all(stream, &replies.bytes));
            match race(cut(&mut session), written).await {
                First::Left(()) => return service.broker.count_cut(),
                First::Right(Ok(Ok(()))) => {}
                First::Right(_) => return,
            }
            replies.clear();
        }
        if session.is_over {
            return;
        }
        if was_full {
            continue;
        }
        let arrived = poll_fn(|cx| stream.poll_read(cx, &mut chunk));
        match race(arrived, race(message(&mut session), stage.finishing())).await {
            First::Left(Ok(len)) if len > 0 => buf.extend_from_slice(&chunk[..len]),
            First::Right(First::Left(Some(message))) => {
                message.into_reply().encode(&mut replies.bytes, session.is_resp3)
            }
            First::Right(First::Left(None)) => return service.broker.count_cut(),
            _ => return,
        }
    }
}

/// Encoded replies that wait for the client.
struct Replies {
    bytes: Vec<u8>,
    held: Share,
}

impl Replies {
    fn new(service: &Service) -> Replies {
        Replies { bytes: Vec::new(), held: Share::new(&service.memory) }
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= REPLIES_LEN_MAX
    }

    /// Encodes a reply, or an error where all connections have no memory for it.
    fn push(&mut self, reply: &Reply, is_resp3: bool) {
        if self.held.set(self.bytes.len() + reply.len()) {
            return reply.encode(&mut self.bytes, is_resp3);
        }
        self.held.set(self.bytes.len());
        Reply::no_memory().encode(&mut self.bytes, is_resp3);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(REPLIES_LEN_MAX);
        self.held.set(0);
    }
}

async fn write_all(stream: &impl Connection, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        let len = poll_fn(|cx| stream.poll_write(cx, rest)).await?;
        rest = &rest[len..];
    }
    poll_fn(|cx| stream.poll_flush(cx)).await
}

/// Waits for the next message of the client's subscriptions; `None` if it must be disconnected. Cancel safe.
async fn message(session: &mut Session<'_>) -> Option<Message> {
    match &mut session.subscriber {
        Some(subscriber) => subscriber.next().await,
        None => pending().await,
    }
}

/// Encodes the messages that wait.
fn deliver(session: &mut Session<'_>, replies: &mut Vec<u8>) {
    let Some(subscriber) = &mut session.subscriber else { return };
    while replies.len() < REPLIES_LEN_MAX
        && let Some(message) = subscriber.try_next()
    {
        message.into_reply().encode(replies, session.is_resp3);
    }
}

/// Waits until the client must be disconnected because it does not read its messages. Cancel safe.
async fn cut(session: &mut Session<'_>) {
    match &mut session.subscriber {
        Some(subscriber) => subscriber.cut().await,
        None => pending().await,
    }
}

/// Answers the complete requests, and says whether there was one. Adjacent writes of different keys run at the same time, so
/// that they share commits; all others run alone.
async fn answer(session: &mut Session<'_>, requests: &mut Requests, buf: &mut BytesMut, replies: &mut Replies) -> bool {
    let mut group: Vec<Plan> = Vec::new();
    let mut count = 0;
    while !buf.is_empty() && !session.is_over && !replies.is_full() {
        let taken = requests.take(buf);
        count += u64::from(matches!(taken, Ok(Some(_))));
        match taken {
            Ok(Some(words)) if words.is_empty() => {}
            Ok(Some(words)) => match session.single_write(&words) {
                Some(plan) => {
                    let is_same = |other: &Plan| other.single_write() == plan.single_write();
                    if group.len() >= GROUP_LEN_MAX || group.iter().any(is_same) {
                        run_group(session.context, session.is_resp3, &mut group, replies).await;
                    }
                    group.push(plan);
                }
                None => {
                    run_group(session.context, session.is_resp3, &mut group, replies).await;
                    let reply = session.run(&words).await;
                    replies.push(&reply, session.is_resp3);
                }
            },
            Ok(None) => break,
            Err(Malformed(text)) => {
                run_group(session.context, session.is_resp3, &mut group, replies).await;
                replies.push(&Reply::Error(format!("ERR {text}")), session.is_resp3);
                session.is_over = true;
            }
        }
    }
    run_group(session.context, session.is_resp3, &mut group, replies).await;
    if count > 0 {
        session.show();
    }
    // Once for all, because workers share the counter. Relaxed: nothing else depends on it.
    session.context.service.commands.fetch_add(count, Ordering::Relaxed);
    count > 0
}

/// The most writes of one connection that run at the same time.
const GROUP_LEN_MAX: usize = 64;

async fn run_group(context: Context<'_>, is_resp3: bool, group: &mut Vec<Plan>, replies: &mut Replies) {
    if group.is_empty() {
        return;
    }
    let database = match context.database().await {
        Ok(database) => database,
        Err(error) => {
            let refused = Reply::from(error);
            group.drain(..).for_each(|_| replies.push(&refused, is_resp3));
            return;
        }
    };
    for answer in Plan::run_each(group.drain(..), context.service, database).await {
        replies.push(&answer.unwrap_or_else(|reply| reply), is_resp3);
    }
}
