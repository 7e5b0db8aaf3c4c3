//! The state of one connection, and the commands about it.

use bytes::Bytes;
use dapple::store::Error;
use dapple::time::Instant;
use subtle::ConstantTimeEq;

use super::clients::{Client, Shown};
use super::plan::{Database, Plan};
use super::pubsub::{self, Subscriber};
use super::reply::{OK, Reply, integer};
use super::transaction::{Queue, Queued, Watched};
use super::{DATABASES, Service, client, commands, table, transaction};

/// The database that a command works on.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) service: &'a Service,
    pub(super) index: u8,
}

pub(super) struct Session<'a> {
    pub(super) context: Context<'a>,
    pub(super) client: &'a Client,
    pub(super) is_resp3: bool,
    /// Whether the connection closes after the replies.
    pub(super) is_over: bool,
    is_known: bool,
    pub(super) name: Bytes,
    /// The name and the version of the client's library.
    pub(super) library: [Bytes; 2],
    /// The last command.
    last: &'static str,
    /// The commands after `MULTI`.
    pub(super) queue: Option<Queue>,
    pub(super) watched: Watched,
    /// Since the first subscription.
    pub(super) subscriber: Option<Subscriber>,
}

impl<'a> Context<'a> {
    /// The table of the database.
    pub(super) async fn database(self) -> Result<&'a Database, Error> {
        self.service.database(self.index).await
    }

    /// Runs a command that does not change the connection's state.
    pub(super) async fn run(self, name: &str, words: &[Bytes]) -> Reply {
        commands::run(self, name, words).await.unwrap_or_else(|reply| reply)
    }
}

impl<'a> Session<'a> {
    pub(super) fn new(service: &'a Service, client: &'a Client) -> Session<'a> {
        Session {
            context: Context { service, index: 0 },
            client,
            is_resp3: false,
            is_over: false,
            is_known: service.password.is_none(),
            name: Bytes::new(),
            library: [Bytes::new(), Bytes::new()],
            last: "NULL",
            queue: None,
            watched: Watched::default(),
            subscriber: None,
        }
    }

    /// The memory of what it keeps between requests. It counts as an unfinished request does.
    pub(super) fn kept_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes) + self.watched.bytes
    }

    /// Shows the state to other clients.
    pub(super) fn show(&self) {
        let (channels, patterns) = self.subscriber.as_ref().map_or((0, 0), |subscriber| subscriber.counts());
        self.client.show(Shown {
            name: self.name.clone(),
            library: self.library.clone(),
            database: self.context.index,
            channels,
            patterns,
            queued: self.queue.as_ref().map(Queue::len),
            is_resp3: self.is_resp3,
            command: self.last,
            at: Instant::now(),
        });
    }

    /// Runs one command, or adds it to the transaction.
    pub(super) async fn run(&mut self, words: &[Bytes]) -> Reply {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
        match table::check(&name, words) {
            Ok(known) => self.last = known,
            Err(reply) => return self.refuse(&name, reply),
        }
        if !self.is_known && !matches!(&name[..], "AUTH" | "HELLO" | "QUIT" | "RESET") {
            return self.spoil(Reply::Error("NOAUTH Authentication required.".to_owned()));
        }
        if self.is_subscribed() && !self.is_resp3 && !SUBSCRIBED.contains(&&name[..]) {
            return self.spoil(Reply::Error(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
                 context",
                full_name(&name, words)
            )));
        }
        match &name[..] {
            "MULTI" | "EXEC" | "DISCARD" | "WATCH" => {
                transaction::run(self, &name, &words[1..]).await.unwrap_or_else(|reply| reply)
            }
            "QUIT" | "RESET" => self.run_now(&name, words).await,
            _ if self.queue.is_some() => self.enqueue(&name, words),
            _ => self.run_now(&name, words).await,
        }
    }

    /// Runs a checked command.
    pub(super) async fn run_now(&mut self, name: &str, words: &[Bytes]) -> Reply {
        let args = &words[1..];
        match name {
            "QUIT" => {
                self.is_over = true;
                OK
            }
            "RESET" => {
                *self = Session { last: self.last, ..Session::new(self.context.service, self.client) };
                Reply::Simple("RESET")
            }
            "AUTH" => self.auth(args),
            "HELLO" => self.hello(args),
            "SELECT" => self.select(args),
            "CLIENT" => client::run(self, args),
            "SUBSCRIBE" | "PSUBSCRIBE" | "UNSUBSCRIBE" | "PUNSUBSCRIBE" => {
                pubsub::run(self, name, args).await.unwrap_or_else(|reply| reply)
            }
            "PING" if self.is_subscribed() && !self.is_resp3 => {
                Reply::List(vec![Reply::text("pong"), Reply::Bulk(args.first().cloned().unwrap_or_default())])
            }
            "UNWATCH" => {
                self.watched = Watched::default();
                OK
            }
            _ => self.context.run(name, words).await,
        }
    }

    /// Refuses a command that does not exist or has too few or too many words.
    fn refuse(&mut self, name: &str, reply: Reply) -> Reply {
        match reply {
            Reply::Error(text) if name == "EXEC" => {
                (self.queue, self.watched) = (None, Watched::default());
                let reason = text.strip_prefix("ERR ").unwrap_or(&text);
                Reply::Error(format!("EXECABORT Transaction discarded because of: {reason}"))
            }
            reply => self.spoil(reply),
        }
    }

    /// Whether the client has subscriptions.
    fn is_subscribed(&self) -> bool {
        self.subscriber.as_ref().is_some_and(|subscriber| subscriber.count() > 0)
    }

    /// Adds a command to the transaction.
    fn enqueue(&mut self, name: &str, words: &[Bytes]) -> Reply {
        let Some(queue) = &mut self.queue else { return OK };
        let database = queue.database.unwrap_or(self.context.index);
        let words = &transaction::copied(words);
        let queued = match table::plan(name, &words[1..]) {
            Some(Ok(plan)) => Queued::Plan(plan, database),
            // Redis finds such errors when the transaction runs.
            Some(Err(reply)) => Queued::Known(reply),
            None => Queued::Other(name.to_owned(), words.clone()),
        };
        if name == "SELECT"
            && let Ok(database) = database_of(&words[1])
        {
            queue.database = Some(database);
        }
        match self.queue.as_mut().map(|queue| queue.push(queued, words)) {
            Some(Err(reply)) => self.spoil(reply),
            _ => Reply::Simple("QUEUED"),
        }
    }

    /// An error while commands are queued ends the transaction.
    fn spoil(&mut self, reply: Reply) -> Reply {
        if let Some(queue) = &mut self.queue {
            queue.spoil();
        }
        reply
    }

    /// The plan of a write that changes only one key, in any order with writes of other keys.
    pub(super) fn single_write(&mut self, words: &[Bytes]) -> Option<Plan> {
        if !self.is_known || self.queue.is_some() || self.is_subscribed() || words.len() < 2 {
            return None;
        }
        let name = WRITES.iter().find(|write| words[0].eq_ignore_ascii_case(write.as_bytes()))?;
        let known = table::check(name, words).ok()?;
        let plan = table::plan(name, &words[1..])?.ok().filter(|plan| plan.single_write().is_some())?;
        self.last = known;
        Some(plan)
    }

    fn auth(&mut self, args: &[Bytes]) -> Reply {
        let Some(password) = &self.context.service.password else {
            match args {
                [_] => {}
                [user, _] if user == "default" => return OK,
                [_, _] => return wrong_password(),
                _ => return Reply::syntax(),
            }
            let text = "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                        your configuration is correct?";
            return Reply::Error(text.to_owned());
        };
        let given = match args {
            [password] => Some(password),
            [user, password] if user == "default" => Some(password),
            [_, _] => None,
            _ => return Reply::syntax(),
        };
        if given.is_some_and(|given| bool::from(given.ct_eq(password.as_bytes()))) {
            self.is_known = true;
            return OK;
        }
        wrong_password()
    }

    fn hello(&mut self, args: &[Bytes]) -> Reply {
        let mut is_resp3 = self.is_resp3;
        let mut rest = args;
        if let Some((version, others)) = rest.split_first() {
            is_resp3 = match &version[..] {
                b"2" => false,
                b"3" => true,
                other if integer(other).is_ok() => {
                    return Reply::Error("NOPROTO unsupported protocol version".to_owned());
                }
                _ => return Reply::Error("ERR Protocol version is not an integer or out of range".to_owned()),
            };
            rest = others;
        }
        loop {
            rest = match rest {
                [] => break,
                [word, user, password, rest @ ..] if word.eq_ignore_ascii_case(b"AUTH") => {
                    match self.auth(&[user.clone(), password.clone()]) {
                        Reply::Simple(_) => rest,
                        error => return error,
                    }
                }
                [word, name, rest @ ..] if word.eq_ignore_ascii_case(b"SETNAME") => {
                    if let Err(reply) = self.set_name(name) {
                        return reply;
                    }
                    rest
                }
                [word, ..] => {
                    let word = String::from_utf8_lossy(word);
                    return Reply::Error(format!("ERR Syntax error in HELLO option '{word}'"));
                }
            };
        }
        if !self.is_known {
            let text = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                        AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                        version at the same time";
            return Reply::Error(text.to_owned());
        }
        self.is_resp3 = is_resp3;
        Reply::named([
            ("server", Reply::Text("redis".to_owned())),
            ("version", Reply::Text(commands::REDIS_VERSION.to_owned())),
            ("proto", Reply::Number(if is_resp3 { 3 } else { 2 })),
            ("id", Reply::Number(i64::try_from(self.client.id).unwrap_or(i64::MAX))),
            ("mode", Reply::Text("standalone".to_owned())),
            ("role", Reply::Text("master".to_owned())),
            ("modules", Reply::List(Vec::new())),
        ])
    }

    /// Names the connection; an empty name is none.
    pub(super) fn set_name(&mut self, name: &[u8]) -> Result<(), Reply> {
        self.name = client::name(name)?;
        Ok(())
    }

    fn select(&mut self, args: &[Bytes]) -> Reply {
        match database_of(&args[0]) {
            Ok(index) => {
                self.context.index = index;
                OK
            }
            Err(reply) => reply,
        }
    }
}

fn wrong_password() -> Reply {
    Reply::Error("WRONGPASS invalid username-password pair or user is disabled.".to_owned())
}

/// Parses the number of a database.
fn database_of(word: &[u8]) -> Result<u8, Reply> {
    let index = u8::try_from(integer(word)?).ok().filter(|index| *index < DATABASES);
    index.ok_or_else(|| Reply::Error("ERR DB index is out of range".to_owned()))
}

pub(super) fn wrong_number(command: &str) -> Reply {
    Reply::Error(format!("ERR wrong number of arguments for '{}' command", command.to_ascii_lowercase()))
}

/// The name of a command as Redis shows it: `config|get`.
fn full_name(name: &str, words: &[Bytes]) -> String {
    let lower = name.to_ascii_lowercase();
    match words.get(1) {
        Some(word) if matches!(name, "CLIENT" | "COMMAND" | "CONFIG" | "PUBSUB") => {
            format!("{lower}|{}", String::from_utf8_lossy(word).to_ascii_lowercase())
        }
        _ => lower,
    }
}

/// The commands of a client with subscriptions in version 2 of the protocol.
const SUBSCRIBED: &[&str] = &["PING", "PSUBSCRIBE", "PUNSUBSCRIBE", "QUIT", "RESET", "SUBSCRIBE", "UNSUBSCRIBE"];

/// The frequent commands that write one key.
const WRITES: &[&str] = &[
    "SET", "INCR", "INCRBY", "DECR", "DECRBY", "APPEND", "DEL", "EXPIRE", "GETSET", "HDEL", "HINCRBY", "HSET",
    "PEXPIRE", "PSETEX", "SETEX", "SETNX", "UNLINK",
];
