//! The front end's way to the tables: it has no state but connections.

use std::time::Duration;

use axum::response::Response;
use dapple::serve::bearer::Token;
use dapple::stage::remote::{Fate, Peer, RemoteError, RemoteStage};
use dapple::stage::{BoxError, Refused};

use crate::message::{Answer, Ask, Changes, Expected, File, MESSAGE_LEN_MAX, Row, Stamp};

/// The hosts of the tables, in the order of their addresses, and the token. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Front {
    tables: Vec<RemoteStage<Ask, Answer>>,
    /// Without one, this front end changes no files.
    pub(crate) token: Option<Token>,
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

/// The reply to a request of the web.
pub(crate) type Reply = Result<Response, Problem>;

impl Front {
    pub(crate) fn new(mut tables: Vec<String>, limit: Duration, token: Option<Token>) -> Result<Front, RemoteError> {
        tables.sort();
        tables.dedup();
        let stage = |table: &String| {
            let peer = Peer::builder(table).timeout(limit).connect_timeout(limit.min(CONNECT_TIMEOUT_MAX));
            let peer = peer.retry_wait_max(RETRY_WAIT_MAX).message_len_max(MESSAGE_LEN_MAX).build()?;
            Ok(peer.stage("table"))
        };
        Ok(Front { tables: tables.iter().map(stage).collect::<Result<_, _>>()?, token })
    }

    pub(crate) async fn file(&self, path: &str, with_body: bool) -> Result<Option<(Stamp, File)>, Problem> {
        match self.ask(path, Ask::File { path: path.to_owned(), with_body }).await? {
            Answer::File(found) => Ok(found),
            other => Err(Problem::Failed(format!("the table answered {other:?}"))),
        }
    }

    /// Replaces or removes a file, if it is the expected one, and returns the new stamp.
    pub(crate) async fn change(&self, path: &str, expected: Expected, file: Option<File>) -> Result<Stamp, Problem> {
        match self.ask(path, Ask::Change { path: path.to_owned(), expected, file }).await? {
            Answer::Changed(stamp) => Ok(stamp),
            other => Err(Problem::Failed(format!("the table answered {other:?}"))),
        }
    }

    /// The rows of a group from one key on, up to another one. All keys of a group begin with its name, and are at one host.
    pub(crate) async fn rows(&self, group: &str, first: String, end: String) -> Result<Vec<Row>, Problem> {
        match self.ask(group, Ask::Rows { first, end }).await? {
            Answer::Rows(rows) => Ok(rows),
            other => Err(Problem::Failed(format!("the table answered {other:?}"))),
        }
    }

    /// Sets or removes rows of a group at one moment, if the row of its name is the expected one.
    pub(crate) async fn change_rows(&self, group: &str, expected: Expected, rows: Changes) -> Result<(), Problem> {
        self.ask(group, Ask::ChangeRows { check: (group.to_owned(), expected), rows }).await.map(drop)
    }

    /// Asks the host that has `name`.
    async fn ask(&self, name: &str, ask: Ask) -> Result<Answer, Problem> {
        let number = crc32fast::hash(name.as_bytes()) as usize % self.tables.len();
        let is_change = matches!(ask, Ask::Change { .. } | Ask::ChangeRows { .. });
        match self.tables[number].clone().send(ask).await {
            Ok(Answer::Conflict) => Err(Problem::Conflict),
            Ok(Answer::Unknown) => Err(Problem::Unknown("the store does not know".to_owned())),
            Ok(Answer::Unfit(why)) => Err(Problem::Unfit(why)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(of_fate(&error, is_change)),
        }
    }
}

/// The problem by what is certain: a read, or a change that has not been made, may be sent again by any client, and a
/// change of unknown fate only by those that may send it twice.
fn of_fate(error: &BoxError, is_change: bool) -> Problem {
    let why = error.to_string();
    match Fate::of(error) {
        Fate::Unknown if is_change => Problem::Unknown(why),
        Fate::NotRun | Fate::Unknown => {
            Problem::Later { why, after: Refused::find(&**error).map_or(RETRY_WAIT_MAX, |it| it.retry_after) }
        }
        Fate::Ran => Problem::Failed(why),
    }
}

/// Attempts to reach a host that does not answer end after this time, and the next one begins.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(1);
/// A host that is back gets requests after this time.
const RETRY_WAIT_MAX: Duration = Duration::from_millis(250);
