//! `dapple proxy` between plain sockets: clients on one side, small origins on the other.

mod caching;
mod checking;
mod forwarding;
mod hostile;
mod interim;
mod limits;
mod observing;
mod origin;
mod reverse;
mod safety;
mod sharing;
mod trailers;
mod tunnels;
mod upgrading;
mod uploads;
mod validating;

use std::fmt::Write;

use crate::support::{Response, Server};

/// Sends a GET through a proxy, on a connection of its own.
fn get(proxy: &Server, url: &str, headers: &str) -> Response {
    ask(proxy, "GET", url, headers)
}

fn ask(proxy: &Server, method: &str, url: &str, headers: &str) -> Response {
    proxy.connect().request(method, url, headers)
}

/// The proxy's own account of a reply.
fn note(response: &Response) -> &str {
    response.header("cache-status").unwrap_or_default()
}

/// A response of an origin; `head` are whole lines.
fn reply(status: &str, head: &str, body: &str) -> Vec<u8> {
    let mut text = String::new();
    write!(text, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{head}\r\n{body}", body.len()).unwrap();
    text.into_bytes()
}

/// One number of the proxy's status page.
fn number(proxy: &Server, name: &str) -> u64 {
    let status = proxy.get("/-/status");
    let text = status.text();
    let at = text.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {text}"));
    let digits = text[at + name.len() + 3..].split([',', '}']).next().unwrap();
    digits.parse().unwrap_or_else(|_| panic!("{name} in {text}"))
}
