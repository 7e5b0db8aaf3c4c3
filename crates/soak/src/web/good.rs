//! An HTTP/1.1 client that checks each answer.

use std::io::{self, BufRead, BufReader, Read, Write};

use soak::{Dice, Wire};

use super::Target;
use super::site::{Site, Want};

/// Some requests on one connection, each of which must be answered correctly.
pub(crate) fn be_good(target: &Target, site: &Site, dice: &mut Dice) -> Result<(), String> {
    let wire = target.http1().map_err(|error| format!("a good client cannot connect: {error}"))?;
    let mut stream = BufReader::new(wire);
    for number in 0..=dice.roll(8) {
        let want = site.want(dice);
        match ask(&mut stream, &want, dice) {
            Ok(Goes::On) => {}
            Ok(Goes::Ends) => break,
            // A connection may end between two requests at any time; then the second is sent again
            // elsewhere.
            Ok(Goes::Unanswered) if number > 0 => return be_good(target, site, dice),
            Ok(Goes::Unanswered) => {
                return Err(format!("a good request for {}, the first of its connection, has no answer", want.name));
            }
            Err(error) => return Err(format!("a good request for {}: {error}", want.name)),
        }
    }
    Ok(())
}

/// A connection that is kept during an event of the server.
pub(crate) struct Kept(BufReader<Wire>);

impl Kept {
    pub(crate) fn begin(target: &Target) -> Result<Kept, String> {
        let wire = target.http1().map_err(|error| format!("no connection to keep: {error}"))?;
        Ok(Kept(BufReader::new(wire)))
    }

    /// Sends one more request on it.
    pub(crate) fn ask(&mut self, site: &Site, dice: &mut Dice) -> Result<(), String> {
        match ask(&mut self.0, &site.want(dice), dice) {
            Ok(Goes::On) => Ok(()),
            Ok(Goes::Ends | Goes::Unanswered) => Err("a connection was lost at SIGHUP".to_owned()),
            Err(error) => Err(format!("on a connection that was there before SIGHUP: {error}")),
        }
    }
}

/// The next step of the connection.
enum Goes {
    On,
    /// The reply was announced as the last one.
    Ends,
    /// It was closed before a byte of the reply.
    Unanswered,
}

fn ask(stream: &mut BufReader<Wire>, want: &Want, dice: &mut Dice) -> io::Result<Goes> {
    let field = want.field.as_ref().map(|(name, value)| format!("{name}: {value}\r\n")).unwrap_or_default();
    let request = format!("{} /{} HTTP/1.1\r\nHost: a\r\n{field}\r\n", want.method, want.name);
    let cut = dice.roll(request.len() as u64) as usize;
    let sent = stream.get_mut().write_all(&request.as_bytes()[..cut]);
    let sent = sent.and_then(|()| stream.get_mut().write_all(&request.as_bytes()[cut..]));
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut line = String::new();
    match sent.and_then(|()| stream.read_line(&mut line)) {
        Ok(0) => return Ok(Goes::Unanswered),
        Ok(_) => {}
        Err(error) if line.is_empty() && is_closed(&error) => return Ok(Goes::Unanswered),
        Err(error) => return Err(error),
    }
    if !line.starts_with(&format!("HTTP/1.1 {} ", want.status)) {
        return Err(wrong(format!("{} expected, got {line:?}", want.status)));
    }
    let mut goes = Goes::On;
    while !line.trim_end().is_empty() {
        if line.trim_end().eq_ignore_ascii_case("connection: close") {
            goes = Goes::Ends;
        }
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(wrong("the head is cut short".to_owned()));
        }
    }
    let mut body = vec![0; want.body.len()];
    stream.read_exact(&mut body)?;
    if body == want.body { Ok(goes) } else { Err(wrong("the bytes are wrong".to_owned())) }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}
