//! Requirements and their cases.

/// Which document a requirement stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standard {
    /// RFC 9110, what messages mean.
    Semantics,
    /// RFC 9112, how HTTP/1.1 writes them.
    Messages,
}

/// How strongly something is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Must,
    MustNot,
    /// Not binding, and kept anyway.
    Should,
    /// What the documents only describe, or what follows from several of their requirements.
    Rule,
}

/// Something that a document asks for.
pub(super) struct Requirement {
    pub(super) section: &'static str,
    pub(super) level: Level,
    pub(super) text: &'static str,
    pub(super) cases: Vec<Case>,
    /// Why there is no case.
    pub(super) moot: Option<&'static str>,
}

/// One proof of a requirement.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
    pub(super) end: End,
    /// Whether it means something else when its bytes come one by one.
    pub(super) is_at_once: bool,
    /// Whether it means something else with a request behind it.
    pub(super) is_alone: bool,
}

/// What is done, in this order.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(Vec<u8>),
    /// Reads one reply, which has to be like this.
    Read(Reply),
    /// Tells the server that no more will be sent.
    HalfClose,
}

/// How the connection has to be behind the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It takes another request, and there are no bytes in front of its reply.
    Open,
    /// The server ends it without another byte. Whatever else the client sends is not answered.
    Closed,
}

/// What a reply has to be like.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) fields: Vec<(&'static str, Want)>,
    pub(super) body: Option<Vec<u8>>,
    /// Whether it answers a `HEAD`, so that no body follows whatever it says.
    pub(super) is_head: bool,
    /// Whether it answers HTTP/1.0.
    pub(super) is_old: bool,
}

/// What a field of a reply has to be like.
#[derive(Clone, Debug)]
pub(super) enum Want {
    Is(&'static str),
    Contains(&'static str),
    Present,
    Absent,
}

/// What has to come back.
pub(super) struct Outcome {
    pub(super) replies: Vec<Reply>,
    pub(super) end: End,
}

pub(super) fn must(section: &'static str, text: &'static str) -> Requirement {
    Requirement { section, level: Level::Must, text, cases: Vec::new(), moot: None }
}

pub(super) fn must_not(section: &'static str, text: &'static str) -> Requirement {
    Requirement { level: Level::MustNot, ..must(section, text) }
}

pub(super) fn should(section: &'static str, text: &'static str) -> Requirement {
    Requirement { level: Level::Should, ..must(section, text) }
}

pub(super) fn rule(section: &'static str, text: &'static str) -> Requirement {
    Requirement { level: Level::Rule, ..must(section, text) }
}

impl Requirement {
    /// Bytes are sent at once, and these replies come.
    pub(super) fn case(self, name: &'static str, send: impl AsRef<[u8]>, outcome: impl Into<Outcome>) -> Requirement {
        let Outcome { replies, end } = outcome.into();
        let mut steps = vec![Step::Send(send.as_ref().to_vec())];
        steps.extend(replies.into_iter().map(Step::Read));
        self.script(name, steps, end)
    }

    /// Steps of any kind.
    pub(super) fn script(mut self, name: &'static str, steps: Vec<Step>, end: End) -> Requirement {
        self.cases.push(Case { name, steps, end, is_at_once: false, is_alone: false });
        self
    }

    /// The last case is not played in pieces.
    pub(super) fn at_once(mut self) -> Requirement {
        self.cases.last_mut().expect("a case").is_at_once = true;
        self
    }

    /// The last case is not played with another request behind it.
    pub(super) fn alone(mut self) -> Requirement {
        self.cases.last_mut().expect("a case").is_alone = true;
        self
    }

    /// A case for each of these, under one name with a number.
    pub(super) fn each<T: AsRef<[u8]>>(
        mut self,
        name: &'static str,
        sends: impl IntoIterator<Item = T>,
        outcome: fn() -> Outcome,
    ) -> Requirement {
        for (number, send) in sends.into_iter().enumerate() {
            let name = String::leak(format!("{name}-{}", number + 1));
            self = self.case(name, send, outcome());
        }
        self
    }

    /// The same for requests that differ in one line.
    pub(super) fn each_line<T: AsRef<[u8]>>(
        self,
        name: &'static str,
        lines: impl IntoIterator<Item = T>,
        outcome: fn() -> Outcome,
    ) -> Requirement {
        let request = |line: T| [b"GET / HTTP/1.1\r\nHost: a\r\n", line.as_ref(), b"\r\n\r\n"].concat();
        self.each(name, lines.into_iter().map(request), outcome)
    }

    /// It does not apply, or is shown elsewhere.
    pub(super) fn moot(self, reason: &'static str) -> Requirement {
        Requirement { moot: Some(reason), ..self }
    }
}

/// `GET` of a path, with more lines; each is ended by CR LF.
pub(super) fn get(path: &str, lines: &str) -> Vec<u8> {
    request("GET", path, lines)
}

/// A request of HTTP/1.1 with a host.
pub(super) fn request(method: &str, path: &str, lines: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes()
}

pub(super) fn reply(status: u16) -> Reply {
    Reply { status, fields: Vec::new(), body: None, is_head: false, is_old: false }
}

/// `200` with the start page; the connection goes on.
pub(super) fn ok() -> Reply {
    reply(200).body(super::site::INDEX)
}

/// As [`ok`], where an [`Outcome`] has to be named.
pub(super) fn fine() -> Outcome {
    ok().into()
}

/// One reply with this status, and then the connection ends: nothing that comes behind is taken for a request.
pub(super) fn refused(status: u16) -> Outcome {
    reply(status).is("connection", "close").closed()
}

pub(super) fn bad() -> Outcome {
    refused(400)
}

/// Nothing, and the connection ends.
pub(super) fn silence() -> Outcome {
    Outcome { replies: Vec::new(), end: End::Closed }
}

impl Reply {
    pub(super) fn is(self, name: &'static str, value: &'static str) -> Reply {
        self.want(name, Want::Is(value))
    }

    pub(super) fn contains(self, name: &'static str, value: &'static str) -> Reply {
        self.want(name, Want::Contains(value))
    }

    pub(super) fn has(self, name: &'static str) -> Reply {
        self.want(name, Want::Present)
    }

    pub(super) fn lacks(self, name: &'static str) -> Reply {
        self.want(name, Want::Absent)
    }

    fn want(mut self, name: &'static str, want: Want) -> Reply {
        self.fields.push((name, want));
        self
    }

    pub(super) fn body(self, body: impl AsRef<[u8]>) -> Reply {
        Reply { body: Some(body.as_ref().to_vec()), ..self }
    }

    pub(super) fn empty(self) -> Reply {
        self.body("")
    }

    /// It answers a `HEAD`.
    pub(super) fn head(self) -> Reply {
        Reply { is_head: true, ..self }
    }

    /// It answers HTTP/1.0.
    pub(super) fn old(self) -> Reply {
        Reply { is_old: true, ..self }
    }

    pub(super) fn closed(self) -> Outcome {
        Outcome { replies: vec![self], end: End::Closed }
    }

    pub(super) fn then(self, next: impl Into<Outcome>) -> Outcome {
        let mut next = next.into();
        next.replies.insert(0, self);
        next
    }
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Outcome {
        Outcome { replies: vec![reply], end: End::Open }
    }
}

pub(super) fn send(bytes: impl AsRef<[u8]>) -> Step {
    Step::Send(bytes.as_ref().to_vec())
}

pub(super) fn read(reply: Reply) -> Step {
    Step::Read(reply)
}
