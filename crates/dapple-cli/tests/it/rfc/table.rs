//! Requirements and their cases.

/// The document of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standard {
    /// RFC 9110, the meaning of messages.
    Semantics,
    /// RFC 9112, their form in HTTP/1.1.
    Messages,
}

/// The strength of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Must,
    MustNot,
    /// Not binding, and kept anyway.
    Should,
    /// A description in the documents, or a consequence of several requirements.
    Rule,
}

/// A requirement of a document.
pub(super) struct Requirement {
    pub(super) section: &'static str,
    pub(super) level: Level,
    pub(super) text: &'static str,
    pub(super) cases: Vec<Case>,
    /// The reason why there is no case.
    pub(super) moot: Option<&'static str>,
}

/// One proof of a requirement.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
    pub(super) end: End,
    /// Whether it differs if its bytes arrive one by one.
    pub(super) is_at_once: bool,
    /// Whether it differs if a request follows.
    pub(super) is_alone: bool,
}

/// The steps, in order.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(Vec<u8>),
    /// Reads one reply, which has to match.
    Read(Reply),
    /// Tells the server that no more will be sent.
    HalfClose,
}

/// The state of the connection after the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It takes another request, and no bytes precede the reply.
    Open,
    /// The server ends it without another byte. Nothing that the client sends afterwards is
    /// answered.
    Closed,
}

/// A pattern for a reply.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) fields: Vec<(&'static str, Want)>,
    pub(super) body: Option<Vec<u8>>,
    /// Whether it answers a `HEAD`, so that no body follows.
    pub(super) is_head: bool,
    /// Whether it answers HTTP/1.0.
    pub(super) is_old: bool,
}

/// A pattern for a field of a reply.
#[derive(Clone, Debug)]
pub(super) enum Want {
    Is(&'static str),
    Contains(&'static str),
    Present,
    Absent,
}

/// The expected outcome.
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
    /// Adds a case that sends bytes at once, and expects these replies.
    pub(super) fn case(self, name: &'static str, send: impl AsRef<[u8]>, outcome: impl Into<Outcome>) -> Requirement {
        let Outcome { replies, end } = outcome.into();
        let mut steps = vec![Step::Send(send.as_ref().to_vec())];
        steps.extend(replies.into_iter().map(Step::Read));
        self.script(name, steps, end)
    }

    /// Adds a case with steps of any kind.
    pub(super) fn script(mut self, name: &'static str, steps: Vec<Step>, end: End) -> Requirement {
        self.cases.push(Case { name, steps, end, is_at_once: false, is_alone: false });
        self
    }

    /// Does not play the last case in pieces.
    pub(super) fn at_once(mut self) -> Requirement {
        self.cases.last_mut().expect("a case").is_at_once = true;
        self
    }

    /// Does not play the last case with another request after it.
    pub(super) fn alone(mut self) -> Requirement {
        self.cases.last_mut().expect("a case").is_alone = true;
        self
    }

    /// Adds a case for each of these, under one name with a number.
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

    /// States that the requirement does not apply, or is shown elsewhere.
    pub(super) fn moot(self, reason: &'static str) -> Requirement {
        Requirement { moot: Some(reason), ..self }
    }
}

/// A `GET` of a path, with more lines, each ended by CR LF.
pub(super) fn get(path: &str, lines: &str) -> Vec<u8> {
    request("GET", path, lines)
}

/// An HTTP/1.1 request with a host.
pub(super) fn request(method: &str, path: &str, lines: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes()
}

pub(super) fn reply(status: u16) -> Reply {
    Reply { status, fields: Vec::new(), body: None, is_head: false, is_old: false }
}

/// `200` with the start page; the connection stays open.
pub(super) fn ok() -> Reply {
    reply(200).body(super::site::INDEX)
}

/// As [`ok`], as an [`Outcome`].
pub(super) fn fine() -> Outcome {
    ok().into()
}

/// One reply with this status, then the end of the connection: no later bytes are read as a
/// request.
pub(super) fn refused(status: u16) -> Outcome {
    reply(status).is("connection", "close").closed()
}

pub(super) fn bad() -> Outcome {
    refused(400)
}

/// No reply, and the connection ends.
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

    /// Marks the reply as one to a `HEAD`.
    pub(super) fn head(self) -> Reply {
        Reply { is_head: true, ..self }
    }

    /// Marks the reply as one to HTTP/1.0.
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
