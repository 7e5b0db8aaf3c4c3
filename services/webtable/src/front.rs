//! The front end's way to the tables: it has no state but connections.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use dapple::serve::bearer::Token;
use dapple::stage::Refused;
use dapple::stage::remote::{Fate, Peer, RemoteError, RemoteStage};
use dapple::sync::{OwnedSemaphorePermit, Semaphore};

use crate::message::{Answer, Ask, Changes, Expected, File, MESSAGE_LEN_MAX, Row, Stamp};

/// The hosts of the tables, in the order of their addresses, and the token. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Front {
    tables: Vec<RemoteStage<Ask, Answer>>,
    /// Without one, this front end changes no files.
    pub(crate) token: Option<Token>,
    /// The room for bodies, in bytes.
    bodies: Arc<Semaphore>,
}

/// The reason why a request is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("there is no such page")]
    Missing,
    #[error("it is another one by now")]
    Conflict,
    #[error("the token is missing or wrong; send Authorization: Bearer TOKEN")]
    NoToken,
    #[error("this front end changes no files: it was started without --token-file")]
    ReadOnly,
    #[error("the range is outside of the {0} bytes")]
    Range(usize),
    #[error("{0}")]
    Unfit(String),
    /// Nothing has changed; it may work after a while.
    #[error("not now: {why}")]
    Later { why: String, after: Duration },
    #[error("no answer from the table; a change may have been made, or not: {0}")]
    Unknown(String),
    #[error("{0}")]
    Failed(String),
}

/// A request that other clients come before each time.
pub(crate) fn contended() -> Problem {
    Problem::Later { why: "other clients have changed it each time".to_owned(), after: RETRY_WAIT_MAX }
}

/// The reply to a request of the web.
pub(crate) type Reply = Result<Response, Problem>;

impl Front {
    pub(crate) fn new(mut tables: Vec<String>, limit: Duration, token: Option<Token>) -> Result<Front, RemoteError> {
        tables.sort();
        tables.dedup();
        let stage = |table: &String| {
            let peer = Peer::builder(table).timeout(limit).connect_timeout(limit.min(CONNECT_TIMEOUT_MAX));
            Ok(peer.retry_wait_max(RETRY_WAIT_MAX).message_len_max(MESSAGE_LEN_MAX).build()?.stage("table"))
        };
        let tables = tables.iter().map(stage).collect::<Result<_, _>>()?;
        Ok(Front { tables, token, bodies: Arc::new(Semaphore::new(BODIES_LEN_MAX)) })
    }

    /// A file, without a body that is longer than `body_len_max`.
    pub(crate) async fn about(&self, path: &str, body_len_max: usize) -> Result<Option<(Stamp, File)>, Problem> {
        let answer = self.ask(path, Ask::File { path: path.to_owned(), body_len_max }).await?;
        if let Answer::File(found) = answer { Ok(found) } else { Err(wrong(&answer)) }
    }

    /// A file with its body, which has its part of the room for bodies until its last clone is dropped.
    pub(crate) async fn file(&self, path: &str) -> Result<Option<(Stamp, File)>, Problem> {
        let Some((mut stamp, mut file)) = self.about(path, SMALL_LEN_MAX).await? else { return Ok(None) };
        let (room, len) = (self.room(stamp.len)?, stamp.len);
        if len > SMALL_LEN_MAX {
            let again = self.about(path, len).await?.filter(|(stamp, _)| stamp.len <= len);
            (stamp, file) = again.ok_or_else(contended)?;
        }
        file.body = Bytes::from_owner(Held { body: file.body, _room: room });
        Ok(Some((stamp, file)))
    }

    /// Room for a body of this length.
    pub(crate) fn room(&self, len: usize) -> Result<OwnedSemaphorePermit, Problem> {
        let room = self.bodies.clone().try_acquire_many_owned(len as u32);
        room.map_err(|_| Problem::Later { why: "all room for bodies is in use".to_owned(), after: RETRY_WAIT_MAX })
    }

    /// Replaces or removes a file, if it is the expected one, and returns the new stamp.
    pub(crate) async fn change(&self, path: &str, expected: Expected, file: Option<File>) -> Result<Stamp, Problem> {
        let answer = self.ask(path, Ask::Change { path: path.to_owned(), expected, file }).await?;
        if let Answer::Changed(stamp) = answer { Ok(stamp) } else { Err(wrong(&answer)) }
    }

    /// The rows of a group from one key on, up to another one. All keys of a group begin with its name, and are at one host.
    pub(crate) async fn rows(&self, group: &str, first: String, end: String) -> Result<Vec<Row>, Problem> {
        let answer = self.ask(group, Ask::Rows { first, end }).await?;
        if let Answer::Rows(rows) = answer { Ok(rows) } else { Err(wrong(&answer)) }
    }

    /// Sets or removes rows of a group at one moment, if the row of its name is the expected one.
    pub(crate) async fn change_rows(&self, group: &str, expected: Expected, rows: Changes) -> Result<(), Problem> {
        self.ask(group, Ask::ChangeRows { check: (group.to_owned(), expected), rows }).await.map(drop)
    }

    /// Asks the host that has `name`.
    async fn ask(&self, name: &str, ask: Ask) -> Result<Answer, Problem> {
        let number = crc32fast::hash(name.as_bytes()) as usize % self.tables.len();
        let is_change = matches!(ask, Ask::Change { .. } | Ask::ChangeRows { .. });
        let error = match self.tables[number].clone().send(ask).await {
            Ok(Answer::Conflict) => return Err(Problem::Conflict),
            Ok(Answer::Unknown) => return Err(Problem::Unknown("the store does not know".to_owned())),
            Ok(Answer::Unfit(why)) => return Err(Problem::Unfit(why)),
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let why = error.to_string();
        // A read, or a change that has not been made, may be sent again by any client, and a change of unknown fate only by
        // those that may send it twice.
        Err(match Fate::of(&error) {
            Fate::Unknown if is_change => Problem::Unknown(why),
            Fate::Ran => Problem::Failed(why),
            _ => Problem::Later { why, after: Refused::find(&*error).map_or(RETRY_WAIT_MAX, |it| it.retry_after) },
        })
    }
}

fn wrong(answer: &Answer) -> Problem {
    Problem::Failed(format!("the table answered {answer:?}"))
}

/// A body and its room.
struct Held {
    body: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// A request that other clients come before each time begins again so many times.
pub(crate) const TURNS_MAX: usize = 50;
/// The bytes of all uploads and replies with files at the same time.
const BODIES_LEN_MAX: usize = 256 << 20;
/// A body of at most this length comes with the first answer.
const SMALL_LEN_MAX: usize = 64 << 10;
/// Attempts to reach a host that does not answer end after this time, and the next one begins.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(1);
/// A host that is back gets requests after this time.
const RETRY_WAIT_MAX: Duration = Duration::from_millis(250);
