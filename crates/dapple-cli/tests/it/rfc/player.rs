//! Plays cases against the server.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::reader::{Reader, Received};
use super::site::{Fixture, SECRET, TEXT};
use super::table::{Case, End, Reply, Requirement, Step, Want};

/// How the bytes of a case are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// All at once.
    Whole,
    /// In small pieces, most of them of one byte.
    Pieces,
    /// All at once, followed by another request, which must not be answered.
    Followed,
}

/// Plays all cases of a chapter, each in every manner, and reports all failures.
pub(super) fn play_all(requirements: Vec<Requirement>) {
    let fixture = Fixture::start();
    let mut failures = Vec::new();
    for requirement in &requirements {
        assert!(requirement.cases.is_empty() == requirement.moot.is_some(), "{}", requirement.text);
        for case in &requirement.cases {
            for manner in manners(case) {
                if let Err(what) = play(case, manner, &fixture) {
                    let (name, section, text) = (case.name, requirement.section, requirement.text);
                    failures.push(format!("{name} ({manner:?}): {what}\n    {section}: {text}\n    {}", sent(case)));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

fn manners(case: &Case) -> Vec<Manner> {
    let ends_with_read = matches!(case.steps.last(), Some(Step::Read(_)));
    let half_closes = case.steps.iter().any(|step| matches!(step, Step::HalfClose));
    let mut manners = vec![Manner::Whole];
    if !case.is_at_once {
        manners.push(Manner::Pieces);
    }
    if case.end == End::Closed && ends_with_read && !half_closes && !case.is_alone {
        manners.push(Manner::Followed);
    }
    manners
}

fn play(case: &Case, manner: Manner, fixture: &Fixture) -> Result<(), String> {
    let stream = TcpStream::connect(("127.0.0.1", fixture.server.port)).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = Reader::new(&stream);
    let last_send = case.steps.iter().rposition(|step| matches!(step, Step::Send(_)));
    for (place, step) in case.steps.iter().enumerate() {
        match step {
            Step::Send(bytes) => {
                let mut bytes = filled_in(bytes, fixture);
                if manner == Manner::Followed && Some(place) == last_send {
                    bytes.extend_from_slice(FOLLOWER);
                }
                write(&stream, &bytes, manner)?;
            }
            Step::Read(reply) => {
                let received = reader.reply(reply.is_head, reply.is_old)?;
                compare(&received, reply)?;
            }
            Step::HalfClose => stream.shutdown(Shutdown::Write).map_err(|error| error.to_string())?,
        }
    }
    match case.end {
        End::Open => probe(&stream, &mut reader),
        End::Closed => {
            let rest = reader.rest()?;
            match rest.is_empty() {
                true => Ok(()),
                false => Err(format!("more came: {}", rest.escape_ascii())),
            }
        }
    }
}

/// Sends another request; its answer must be the last.
fn probe<R: std::io::Read>(stream: &TcpStream, reader: &mut Reader<R>) -> Result<(), String> {
    write(stream, b"GET /text.txt HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n", Manner::Whole)?;
    let received = reader.reply(false, false).map_err(|what| format!("to the next request: {what}"))?;
    if received.status != 200 || received.body != TEXT.as_bytes() {
        return Err(format!("the next request got {received}"));
    }
    let rest = reader.rest()?;
    if rest.is_empty() { Ok(()) } else { Err(format!("after the next reply came {}", rest.escape_ascii())) }
}

fn write(mut stream: &TcpStream, bytes: &[u8], manner: Manner) -> Result<(), String> {
    let piece_len = if manner == Manner::Pieces { bytes.len().div_ceil(PIECES_MAX).max(1) } else { bytes.len().max(1) };
    for piece in bytes.chunks(piece_len) {
        stream.write_all(piece).map_err(|error| format!("sending: {error}"))?;
    }
    Ok(())
}

fn compare(received: &Received, reply: &Reply) -> Result<(), String> {
    if received.status != reply.status {
        return Err(format!("expected {}, got {received}", reply.status));
    }
    for (name, want) in &reply.fields {
        let value = received.field(name);
        let holds = match want {
            Want::Is(expected) => value.as_deref() == Some(*expected),
            Want::Contains(part) => value.as_deref().is_some_and(|value| value.contains(part)),
            Want::Present => value.is_some(),
            Want::Absent => value.is_none(),
        };
        if !holds {
            return Err(format!("{name} should be {want:?} and is {value:?}"));
        }
    }
    if received.body.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()) {
        return Err("bytes were answered that were no request".to_owned());
    }
    match &reply.body {
        Some(body) if *body != received.body => {
            Err(format!("expected {} bytes, got {}", body.len(), received.body.escape_ascii()))
        }
        _ => Ok(()),
    }
}

/// `{etag}` stands for the entity tag of `/text.txt`.
fn filled_in(bytes: &[u8], fixture: &Fixture) -> Vec<u8> {
    const PLACE: &[u8] = b"{etag}";
    let mut filled = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(PLACE.len()).position(|window| window == PLACE) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(fixture.etag.as_bytes());
        rest = &rest[at + PLACE.len()..];
    }
    filled.extend_from_slice(rest);
    filled
}

/// The bytes that a case sends, shortened, for a report.
fn sent(case: &Case) -> String {
    let steps = case.steps.iter().map(|step| match step {
        Step::Send(bytes) => {
            let mut text = bytes.escape_ascii().to_string();
            text.truncate(300);
            format!("sent {text}")
        }
        Step::Read(reply) => format!("read {}", reply.status),
        Step::HalfClose => "half-closed".to_owned(),
    });
    steps.collect::<Vec<_>>().join(", ")
}

/// A request; its answer would show that the previous one was read differently.
const FOLLOWER: &[u8] = b"GET /secret.txt HTTP/1.1\r\nHost: a\r\n\r\n";

/// The most pieces in which bytes are sent.
const PIECES_MAX: usize = 300;

/// How long a case waits for bytes before it fails.
const PATIENCE: Duration = Duration::from_secs(20);
