//! One line of the access log, in its three forms.

use std::io::Write;
use std::time::Duration;

use dapple_http::{Form, Request};
use http::Version;

use super::escape::{json, quoted};
use crate::http::{Client, Served};
use crate::observe::metrics::Ending;
use crate::observe::time;

/// The format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// The common log format of all web servers
    Common,
    /// The same, with referrer and user agent
    Combined,
    /// A JSON object per line, with all known facts
    Json,
}

/// A line without its ending, which is not known yet.
pub(crate) struct Line {
    format: Format,
    text: Vec<u8>,
    /// The position of status and bytes, in the formats that have them in the middle.
    middle: usize,
}

impl Line {
    /// Starts the line of a request.
    pub(crate) fn begin(format: Format, request: &Request<'_>, client: &Client) -> Line {
        let mut text = Vec::with_capacity(LEN);
        let field = |name| request.fields.first(name);
        if format == Format::Json {
            begin_json(&mut text, client);
            member(&mut text, "method", Some(request.method.as_str().as_bytes()));
            member(&mut text, "target", Some(&target(request)));
            member(&mut text, "version", Some(version(request.version).as_bytes()));
            member(&mut text, "host", request.authority.map(str::as_bytes));
            member(&mut text, "referrer", field("referer"));
            member(&mut text, "user_agent", field("user-agent"));
            return Line { format, middle: text.len(), text };
        }
        begin_common(&mut text, client);
        let mut line = request.method.as_str().as_bytes().to_vec();
        line.push(b' ');
        line.extend(target(request));
        line.push(b' ');
        line.extend_from_slice(version(request.version).as_bytes());
        quoted(&line, &mut text);
        let middle = text.len();
        if format == Format::Combined {
            for name in ["referer", "user-agent"] {
                text.push(b' ');
                quoted(field(name).unwrap_or(b"-"), &mut text);
            }
        }
        Line { format, middle, text }
    }

    /// Starts the line of input that is not a request.
    pub(crate) fn refused(format: Format, reason: &str, client: &Client) -> Line {
        let mut text = Vec::with_capacity(LEN);
        if format == Format::Json {
            begin_json(&mut text, client);
            member(&mut text, "refused", Some(reason.as_bytes()));
            return Line { format, middle: text.len(), text };
        }
        begin_common(&mut text, client);
        text.extend_from_slice(b"\"-\"");
        let middle = text.len();
        if format == Format::Combined {
            text.extend_from_slice(b" \"-\" \"-\"");
        }
        Line { format, middle, text }
    }

    /// Writes the whole line after its ending is known.
    pub(crate) fn end(&self, ending: &Ending, served: Option<&Served>, out: &mut Vec<u8>) {
        let status = ending.status.map_or(GONE, |status| status.as_u16());
        let (before, behind) = self.text.split_at(self.middle);
        out.extend_from_slice(before);
        // Writing to memory does not fail.
        let _ = match self.format {
            Format::Json => {
                let Ending { sent, is_complete, duration_us, worker, .. } = ending;
                let worker = worker.map_or("null".to_owned(), |worker| worker.to_string());
                if let Some(Served { upstream, head_us, tries }) = served {
                    member(out, "upstream", upstream.as_ref().map(|name| name.as_bytes()));
                    let _ = write!(out, "\"upstream_us\":{head_us},\"tries\":{tries},");
                }
                let rest = format!(
                    "\"status\":{status},\"bytes\":{sent},\"complete\":{is_complete},\"duration_us\":{duration_us},\"worker\":{worker}}}"
                );
                out.write_all(rest.as_bytes())
            }
            // No bytes are written as a dash.
            _ if ending.sent == 0 => write!(out, " {status} -"),
            _ => write!(out, " {status} {}", ending.sent),
        };
        out.extend_from_slice(behind);
        out.push(b'\n');
    }
}

/// Writes the part before the request.
fn begin_common(text: &mut Vec<u8>, client: &Client) {
    let _ = write!(text, "{} - - [", client.addr.ip().to_canonical());
    time::common(time::now(), text);
    text.extend_from_slice(b"] ");
}

/// Writes the part before the request, with a comma.
fn begin_json(text: &mut Vec<u8>, client: &Client) {
    let at: Duration = time::now();
    text.extend_from_slice(b"{\"time\":\"");
    time::rfc_3339(at, text);
    let (addr, secure, color) = (client.addr, client.is_secure, client.color);
    let _ = write!(text, "\",\"client\":\"{}\",\"port\":{},", addr.ip().to_canonical(), addr.port());
    let _ = write!(text, "\"tls\":{secure},\"color\":{color},");
}

/// Writes a member and its comma, if there is a value.
fn member(text: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    if let Some(value) = value {
        let _ = write!(text, "\"{name}\":");
        json(value, text);
        text.push(b',');
    }
}

/// The target as the client sent it.
fn target(request: &Request<'_>) -> Vec<u8> {
    let mut target = Vec::new();
    let authority = request.authority.unwrap_or_default();
    match request.form {
        Form::Authority => return authority.into(),
        // In HTTP/2 every request has a scheme; the path identifies its target.
        Form::Absolute if request.version < Version::HTTP_2 => {
            let _ = write!(target, "{}://{authority}", request.scheme.unwrap_or("http"));
        }
        Form::Absolute | Form::Origin | Form::Asterisk => {}
    }
    target.extend_from_slice(request.path.as_bytes());
    if let Some(query) = request.query {
        target.push(b'?');
        target.extend_from_slice(query.as_bytes());
    }
    target
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// nginx's status for a client that left before there was a status.
const GONE: u16 = 499;

/// Room for a typical line.
const LEN: usize = 384;

#[cfg(test)]
mod tests {
    use dapple_http::{Field, Fields, Form, Request};
    use http::{Method, StatusCode, Version};

    use super::{Format, Line};
    use crate::http::{Client, Served};
    use crate::observe::metrics::Ending;

    fn line(format: Format) -> String {
        let fields = [Field { name: "Referer", value: b"http://a/\"\n" }, Field { name: "User-Agent", value: b"curl" }];
        let request = Request {
            method: Method::GET,
            version: Version::HTTP_11,
            form: Form::Origin,
            scheme: None,
            authority: Some("a"),
            path: "/x",
            query: Some("y=\"1\""),
            fields: Fields::new(&fields),
        };
        let client =
            Client { addr: "[::ffff:127.0.0.9]:99".parse().unwrap(), is_secure: true, color: 7, alternative: None };
        let ending =
            Ending { status: Some(StatusCode::OK), sent: 12, is_complete: false, duration_us: 34, worker: Some(1) };
        let mut out = Vec::new();
        let served = Served { upstream: Some("http://b:80".into()), head_us: 30, tries: 2 };
        Line::begin(format, &request, &client).end(&ending, Some(&served), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn common_and_combined_are_what_other_programs_read() {
        let common = line(Format::Common);
        assert!(common.starts_with("127.0.0.9 - - ["), "{common}");
        assert!(common.ends_with(" +0000] \"GET /x?y=\\x221\\x22 HTTP/1.1\" 200 12\n"), "{common}");
        let combined = line(Format::Combined);
        assert!(combined.ends_with("\" 200 12 \"http://a/\\x22\\x0A\" \"curl\"\n"), "{combined}");
    }

    #[test]
    fn json_has_all_facts() {
        let text = line(Format::Json);
        assert_eq!(text.matches('\n').count(), 1);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (name, value) in [
            ("client", "127.0.0.9".into()),
            ("tls", true.into()),
            ("color", 7.into()),
            ("method", "GET".into()),
            ("target", "/x?y=\"1\"".into()),
            ("host", "a".into()),
            ("referrer", "http://a/\"\n".into()),
            ("status", 200.into()),
            ("bytes", 12.into()),
            ("complete", serde_json::Value::Bool(false)),
            ("duration_us", 34.into()),
            ("worker", 1.into()),
            ("upstream", "http://b:80".into()),
            ("upstream_us", 30.into()),
            ("tries", 2.into()),
        ] {
            assert_eq!(json[name], value, "{name} in {text}");
        }
    }
}
