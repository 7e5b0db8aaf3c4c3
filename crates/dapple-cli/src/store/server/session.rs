//! The state of one connection, and the commands about it.

use bytes::Bytes;

use super::reply::{OK, Reply};
use super::{DATABASES, Service, commands};

pub(super) struct Session<'a> {
    pub(super) service: &'a Service,
    pub(super) id: u64,
    pub(super) database: u8,
    pub(super) is_resp3: bool,
    /// The connection closes after the replies.
    pub(super) is_over: bool,
    is_known: bool,
    name: Bytes,
}

impl<'a> Session<'a> {
    pub(super) fn new(service: &'a Service) -> Session<'a> {
        let is_known = service.password.is_none();
        let id = service.client_id();
        Session { service, id, database: 0, is_resp3: false, is_over: false, is_known, name: Bytes::new() }
    }

    pub(super) async fn run(&mut self, words: &[Bytes]) -> Reply {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
        let args = &words[1..];
        match &name[..] {
            "AUTH" => self.auth(args),
            "HELLO" => self.hello(args),
            "QUIT" => {
                self.is_over = true;
                OK
            }
            _ if !self.is_known => Reply::Error("NOAUTH Authentication required.".to_owned()),
            "SELECT" => self.select(args),
            "CLIENT" => self.client(args),
            "RESET" => {
                *self = Session { is_known: self.is_known, ..Session::new(self.service) };
                Reply::Simple("RESET")
            }
            _ => self.run_data(words).await,
        }
    }

    /// Runs a command on data, which changes nothing of the connection.
    pub(super) async fn run_data(&self, words: &[Bytes]) -> Reply {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
        commands::run(self, &name, words).await.unwrap_or_else(|reply| reply)
    }

    /// Whether the request is a write of one key, so that its order with writes of other keys does not matter.
    pub(super) fn may_run_beside_others(&self, words: &[Bytes]) -> bool {
        const WRITES: &[&[u8]] =
            &[b"APPEND", b"DECR", b"DECRBY", b"GETSET", b"INCR", b"INCRBY", b"PSETEX", b"SET", b"SETEX", b"SETNX"];
        self.is_known && words.len() > 1 && WRITES.iter().any(|write| words[0].eq_ignore_ascii_case(write))
    }

    fn auth(&mut self, args: &[Bytes]) -> Reply {
        let Some(password) = &self.service.password else {
            let text = "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                        your configuration is correct?";
            return Reply::Error(text.to_owned());
        };
        let given = match args {
            [password] => Some(password),
            [user, password] if user == "default" => Some(password),
            [_, _] => None,
            _ => return wrong_number("auth"),
        };
        if given.is_some_and(|given| is_same(given, password.as_bytes())) {
            self.is_known = true;
            return OK;
        }
        Reply::Error("WRONGPASS invalid username-password pair or user is disabled.".to_owned())
    }

    fn hello(&mut self, args: &[Bytes]) -> Reply {
        let mut is_resp3 = self.is_resp3;
        let mut rest = args;
        if let Some((version, others)) = rest.split_first() {
            is_resp3 = match &version[..] {
                b"2" => false,
                b"3" => true,
                _ => return Reply::Error("NOPROTO unsupported protocol version".to_owned()),
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
                    self.name = name.clone();
                    rest
                }
                _ => return Reply::Error("ERR Syntax error in HELLO option".to_owned()),
            };
        }
        if !self.is_known {
            let text = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                        AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                        version at the same time";
            return Reply::Error(text.to_owned());
        }
        self.is_resp3 = is_resp3;
        Reply::Map(vec![
            ("server", Reply::Text("redis".to_owned())),
            ("version", Reply::Text(commands::REDIS_VERSION.to_owned())),
            ("proto", Reply::Number(if is_resp3 { 3 } else { 2 })),
            ("id", Reply::Number(i64::try_from(self.id).unwrap_or(i64::MAX))),
            ("mode", Reply::Text("standalone".to_owned())),
            ("role", Reply::Text("master".to_owned())),
            ("modules", Reply::List(Vec::new())),
        ])
    }

    fn select(&mut self, args: &[Bytes]) -> Reply {
        let [index] = args else { return wrong_number("select") };
        match std::str::from_utf8(index).ok().and_then(|index| index.parse::<i64>().ok()) {
            Some(index) if (0..i64::from(DATABASES)).contains(&index) => {
                self.database = u8::try_from(index).unwrap_or(0);
                OK
            }
            Some(_) => Reply::Error("ERR DB index is out of range".to_owned()),
            None => Reply::Error("ERR value is not an integer or out of range".to_owned()),
        }
    }

    fn client(&mut self, args: &[Bytes]) -> Reply {
        let Some((word, rest)) = args.split_first() else { return wrong_number("client") };
        match (word.to_ascii_uppercase().as_slice(), rest) {
            (b"SETNAME", [name]) => {
                self.name = name.clone();
                OK
            }
            (b"GETNAME", []) if self.name.is_empty() => Reply::Null,
            (b"GETNAME", []) => Reply::Bulk(self.name.clone()),
            (b"ID", []) => Reply::Number(i64::try_from(self.id).unwrap_or(i64::MAX)),
            (b"SETINFO", [_, _]) => OK,
            _ => Reply::Error(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try CLIENT HELP.",
                String::from_utf8_lossy(word)
            )),
        }
    }
}

pub(super) fn wrong_number(command: &str) -> Reply {
    Reply::Error(format!("ERR wrong number of arguments for '{}' command", command.to_ascii_lowercase()))
}

/// Compares in a time that depends on the lengths only.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}
