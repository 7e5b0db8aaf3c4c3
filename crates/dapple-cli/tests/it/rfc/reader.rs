//! Reads replies like a strict client. Anything that no server may send is an error here.

use std::fmt::{self, Display, Formatter};
use std::io::Read;

/// A reply as it arrived.
pub(super) struct Received {
    pub(super) status: u16,
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Received {
    /// The value of a field; if there are several, all of them with commas between.
    pub(super) fn field(&self, name: &str) -> Option<String> {
        let values: Vec<_> = self.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| &**value).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}

impl Display for Received {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let body = &self.body[..self.body.len().min(80)];
        write!(f, "{} {:?} {:?}", self.status, self.fields, body.escape_ascii().to_string())
    }
}

/// The bytes of one connection.
pub(super) struct Reader<R> {
    stream: R,
    waiting: Vec<u8>,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(stream: R) -> Reader<R> {
        Reader { stream, waiting: Vec::new() }
    }

    /// Reads one reply. `is_head`: it answers a `HEAD`; `is_old`: it answers HTTP/1.0.
    pub(super) fn reply(&mut self, is_head: bool, is_old: bool) -> Result<Received, String> {
        let status = self.status_line()?;
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            fields.push(field(&line)?);
        }
        let mut received = Received { status, fields, body: Vec::new() };
        check(&received, is_old)?;
        let bodiless = is_head || status < 200 || status == 204 || status == 304;
        let len = received.field("content-length").map(|len| len.parse().map_err(|_| format!("length {len:?}")));
        received.body = match (len.transpose()?, received.field("transfer-encoding")) {
            _ if bodiless => Vec::new(),
            (Some(len), None) => self.bytes(len)?,
            (None, Some(coding)) if coding == "chunked" => self.chunks()?,
            (None, None) => return Err("a body without a length".to_owned()),
            (len, coding) => return Err(format!("length {len:?} and coding {coding:?}")),
        };
        Ok(received)
    }

    /// Reads everything up to the end.
    pub(super) fn rest(&mut self) -> Result<Vec<u8>, String> {
        let mut rest = std::mem::take(&mut self.waiting);
        self.stream.read_to_end(&mut rest).map_err(|error| format!("no clean end: {error}"))?;
        Ok(rest)
    }

    /// `HTTP/1.1 200 OK`; the second space is there even without a reason phrase (RFC 9112, section
    /// 4).
    fn status_line(&mut self) -> Result<u16, String> {
        let line = self.line()?;
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split_once(' '));
        let status = status.filter(|(code, _)| code.len() == 3).and_then(|(code, _)| code.parse().ok());
        status.filter(|status| (100..600).contains(status)).ok_or_else(|| format!("status line {line:?}"))
    }

    fn line(&mut self) -> Result<String, String> {
        loop {
            if let Some(at) = self.waiting.iter().position(|byte| *byte == b'\n') {
                let rest = self.waiting.split_off(at + 1);
                let mut line = std::mem::replace(&mut self.waiting, rest);
                line.truncate(at);
                if line.pop() != Some(b'\r') || line.contains(&b'\r') || line.contains(&0) {
                    return Err(format!("line end of {:?}", line.escape_ascii().to_string()));
                }
                return String::from_utf8(line).map_err(|_| "a line that is not ASCII".to_owned());
            }
            self.more()?;
        }
    }

    fn bytes(&mut self, len: usize) -> Result<Vec<u8>, String> {
        while self.waiting.len() < len {
            self.more()?;
        }
        let rest = self.waiting.split_off(len);
        Ok(std::mem::replace(&mut self.waiting, rest))
    }

    fn chunks(&mut self) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let len = usize::from_str_radix(&line, 16).map_err(|_| format!("chunk size {line:?}"))?;
            body.extend(self.bytes(len)?);
            if !self.line()?.is_empty() {
                return Err("a chunk, or the trailers, without an end".to_owned());
            }
            if len == 0 {
                return Ok(body);
            }
        }
    }

    fn more(&mut self) -> Result<(), String> {
        let mut piece = [0; 16 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(format!("the end, after {:?}", self.waiting.escape_ascii().to_string())),
            Ok(len) => {
                self.waiting.extend_from_slice(&piece[..len]);
                Ok(())
            }
            Err(error) => Err(format!("{error}, behind {:?}", self.waiting.escape_ascii().to_string())),
        }
    }
}

/// Name in lower case, and value.
fn field(line: &str) -> Result<(String, String), String> {
    let (name, value) = line.split_once(':').ok_or_else(|| format!("field {line:?}"))?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_text = value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
    if name.is_empty() || !name.bytes().all(is_token) || !is_text {
        return Err(format!("field {line:?}"));
    }
    Ok((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()))
}

/// Checks what every reply must have, and what none may have.
fn check(reply: &Received, is_old: bool) -> Result<(), String> {
    let status = reply.status;
    let has = |name: &str| reply.fields.iter().any(|(known, _)| known == name);
    let ensure = |holds: bool, what: &str| if holds { Ok(()) } else { Err(format!("{status} {what}: {reply}")) };
    for (name, _) in &reply.fields {
        let count = reply.fields.iter().filter(|(other, _)| other == name).count();
        ensure(count == 1, "with a field twice (RFC 9110, 5.3)")?;
    }
    ensure(status < 200 || reply.field("date").as_deref().is_some_and(is_date), "without a date (RFC 9110, 6.6.1)")?;
    let frames = has("content-length") || has("transfer-encoding");
    ensure(!(frames && (status < 200 || status == 204)), "that frames a body (RFC 9110, 8.6; RFC 9112, 6.1)")?;
    ensure(!(has("content-length") && has("transfer-encoding")), "with length and coding (RFC 9112, 6.2)")?;
    ensure(!(is_old && (has("transfer-encoding") || status < 200)), "that HTTP/1.0 cannot read (RFC 9112, 6.1)")?;
    ensure(status != 405 || has("allow"), "without Allow (RFC 9110, 15.5.6)")?;
    ensure(status != 401 || has("www-authenticate"), "without a challenge (RFC 9110, 15.5.2)")?;
    ensure(!matches!(status, 101 | 426) || has("upgrade"), "without Upgrade (RFC 9110, 7.8)")?;
    for name in ["allow", "vary", "accept-ranges", "cache-control", "content-encoding", "connection"] {
        let is_list = |list: String| list.split(',').all(|element| !element.trim().is_empty());
        ensure(reply.field(name).is_none_or(is_list), "with an empty element (RFC 9110, 5.6.1.1)")?;
    }
    let connection = reply.field("connection");
    let is_option = |option: String| option == "close" || option == "keep-alive";
    ensure(connection.is_none_or(is_option), "with an odd connection (RFC 9110, 7.6.1)")?;
    let is_of_connection = ["keep-alive", "proxy-connection", "te", "trailer", "upgrade"].into_iter().any(has);
    ensure(!is_of_connection, "with a field of the connection that it does not name (RFC 9110, 7.6.1)")?;
    ensure(reply.field("etag").is_none_or(|tag| is_tag(&tag)), "with an odd entity tag (RFC 9110, 8.8.3)")?;
    let (changed, now) = (reply.field("last-modified"), reply.field("date").unwrap_or_default());
    ensure(changed.as_deref().is_none_or(is_date), "with an odd date (RFC 9110, 5.6.7)")?;
    let is_later = |date: String| httpdate::parse_http_date(&date).ok() > httpdate::parse_http_date(&now).ok();
    ensure(!changed.is_some_and(is_later), "changed in the future (RFC 9110, 8.8.2.1)")
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, the required form.
fn is_date(text: &str) -> bool {
    let time = httpdate::parse_http_date(text);
    time.is_ok_and(|time| httpdate::fmt_http_date(time) == text)
}

fn is_tag(text: &str) -> bool {
    let inner = text.strip_prefix("W/").unwrap_or(text).strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.is_some_and(|inner| inner.bytes().all(|byte| byte > b' ' && byte != b'"' && byte < 0x7f))
}
