//! One connection: requests in, replies out, in order.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use dapple::net::TcpStream;
use dapple::task::{First, race};
use dapple::time::timeout;
use dapple_serve::host::EndStage;

use super::Service;
use super::plan::Plan;
use super::reply::Reply;
use super::request::{Malformed, Requests};
use super::session::{Context, Session};

/// Waiting replies are sent before they take more bytes than this.
const REPLIES_LEN_MAX: usize = 64 << 10;
const CHUNK_LEN: usize = 16 << 10;
/// The time in which a client must take at least a part of the replies.
const WRITE_LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn serve(stream: TcpStream, service: &Service, stage: &EndStage) {
    let (read, write) = stream.into_split();
    let mut session = Session::new(service);
    let (mut requests, mut buf, mut replies) = (Requests::default(), BytesMut::new(), Vec::new());
    let mut held = Held { service, bytes: 0 };
    let mut chunk = vec![0; CHUNK_LEN];
    loop {
        answer(&mut session, &mut requests, &mut buf, &mut replies).await;
        if !held.set(buf.len()) {
            Reply::Error(NO_MEMORY.to_owned()).encode(&mut replies, session.is_resp3);
            session.is_over = true;
        }
        let was_full = replies.len() >= REPLIES_LEN_MAX;
        if !replies.is_empty() {
            if !matches!(timeout(WRITE_LIMIT, write.write_all(&replies)).await, Ok(Ok(()))) {
                return;
            }
            replies.clear();
            replies.shrink_to(REPLIES_LEN_MAX);
        }
        if session.is_over {
            return;
        }
        if was_full {
            continue;
        }
        match race(read.read(&mut chunk), stage.finishing()).await {
            First::Left(Ok(len)) if len > 0 => buf.extend_from_slice(&chunk[..len]),
            _ => return,
        }
    }
}

/// The bytes of an unfinished request that count against the limit of all connections.
struct Held<'a> {
    service: &'a Service,
    bytes: usize,
}

impl Held<'_> {
    /// Counts `len` bytes from now on; `false` if all connections together have too many.
    fn set(&mut self, len: usize) -> bool {
        // Small requests are bounded by the number of connections.
        let bytes = if len > CHUNK_LEN { len } else { 0 };
        let before = std::mem::replace(&mut self.bytes, bytes);
        // Relaxed: a sum; no other memory depends on it.
        self.service.unfinished_bytes.fetch_sub(before, Ordering::Relaxed);
        self.service.unfinished_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.service.unfinished_bytes_max
            || bytes == 0
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

const NO_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Answers the complete requests. Adjacent writes of different keys run at the same time, so that
/// they share commits; all others run alone.
async fn answer(session: &mut Session<'_>, requests: &mut Requests, buf: &mut BytesMut, replies: &mut Vec<u8>) {
    let mut group: Vec<Plan> = Vec::new();
    while !buf.is_empty() && !session.is_over && replies.len() < REPLIES_LEN_MAX {
        match requests.take(buf) {
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
                    session.run(&words).await.encode(replies, session.is_resp3);
                }
            },
            Ok(None) => break,
            Err(Malformed(text)) => {
                run_group(session.context, session.is_resp3, &mut group, replies).await;
                Reply::Error(format!("ERR {text}")).encode(replies, session.is_resp3);
                session.is_over = true;
            }
        }
    }
    run_group(session.context, session.is_resp3, &mut group, replies).await;
}

/// The most writes of one connection that run at the same time.
const GROUP_LEN_MAX: usize = 64;

async fn run_group(context: Context<'_>, is_resp3: bool, group: &mut Vec<Plan>, replies: &mut Vec<u8>) {
    if group.is_empty() {
        return;
    }
    let database = match context.database().await {
        Ok(database) => database,
        Err(error) => {
            let refused = Reply::from(error);
            group.drain(..).for_each(|_| refused.encode(replies, is_resp3));
            return;
        }
    };
    for answer in Plan::run_each(group.drain(..), &context.service.store, database).await {
        answer.unwrap_or_else(|reply| reply).encode(replies, is_resp3);
    }
}
