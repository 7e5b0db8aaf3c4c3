//! A service in this process, and a client without any leniency of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use dapple::Runtime;
use dapple::net::TcpListener;
use dapple_files::{Files, Logins, Rules, Tree, Users};
use tempfile::TempDir;

/// A served directory.
pub(crate) struct Served {
    pub(crate) dir: TempDir,
    pub(crate) files: Files,
    addr: SocketAddr,
    pub(crate) runtime: Runtime,
}

/// A reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

pub(crate) const TOKEN: &str = "0123456789abcdef";

impl Served {
    pub(crate) fn new(rules: Rules, users: Users) -> Served {
        // Below the project: its file system has extended attributes, and /tmp need not.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let runtime = crate::runtime();
        let (addr, files) = runtime.block_on(async {
            let tree = Tree::open(dir.path()).await.expect("a tree");
            let files = Files::new(tree, Logins::new(Some(TOKEN.to_owned()), users), rules);
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let addr = listener.local_addr().expect("an address");
            let server = dapple::serve(listener, files.clone()).body_max_bytes(None).no_admission();
            drop(dapple::spawn(async move { server.await }));
            (addr, files)
        });
        Served { dir, files, addr, runtime }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Asks with the token.
    pub(crate) fn ask(&self, method: &str, target: &str, fields: &[&str], body: &[u8]) -> Reply {
        let token = format!("Authorization: Bearer {TOKEN}");
        self.ask_as(&[&[token.as_str()], fields].concat(), method, target, body)
    }

    pub(crate) fn ask_as(&self, fields: &[&str], method: &str, target: &str, body: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(self.addr).expect("a connection");
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.addr);
        for field in fields {
            head.push_str(field);
            head.push_str("\r\n");
        }
        if !body.is_empty() || method == "PUT" {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).expect("the head is sent");
        // A server may answer before it has read all.
        let _ = stream.write_all(body);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        Reply::parse(&reply)
    }
}

impl Reply {
    pub(crate) fn parse(bytes: &[u8]) -> Reply {
        let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut body = bytes[end + 4..].to_vec();
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            body = unchunked(&body);
        }
        Reply { status, head, body }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|part| part == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..end]).expect("a length"), 16).expect("a length");
        if len == 0 {
            break;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + len]);
        rest = &rest[end + 4 + len..];
    }
    body
}
