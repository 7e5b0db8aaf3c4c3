//! The programs under test, and curl.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const TOKEN: &str = "0123456789abcdef";
pub(crate) const AUTHORIZATION: &str = "Authorization: Bearer 0123456789abcdef";
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A running table or front end, which ends with the test.
pub(crate) struct Program {
    child: Child,
    /// `HOST:PORT`.
    pub(crate) address: String,
}

/// A reply to curl.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
    head: String,
}

impl Program {
    pub(crate) fn start(args: &[&str]) -> Program {
        Program::try_start(args).unwrap_or_else(|| panic!("the program says where it listens: {args:?}"))
    }

    /// `None` if the program ends, as it does at an address that is taken.
    pub(crate) fn try_start(args: &[&str]) -> Option<Program> {
        let mut child = command(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().trim_end_matches('/').rsplit([' ', '/']).next().unwrap().to_owned();
        if address.is_empty() {
            child.wait().unwrap();
            return None;
        }
        Some(Program { child, address })
    }

    pub(crate) fn table(store: &Path, address: &str) -> Program {
        Program::start(&["table", "--store", &url(store), "--listen", address])
    }

    /// A front end with [`TOKEN`].
    pub(crate) fn front(folder: &Path, tables: &[&Program]) -> Program {
        let tables: Vec<&str> = tables.iter().map(|table| table.address.as_str()).collect();
        let token = token_file(folder);
        let token = token.to_str().unwrap();
        let tables = tables.join(",");
        Program::start(&["front", "--listen", "127.0.0.1:0", "--tables", &tables, "--token-file", token])
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn signal(&mut self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        if name == "TERM" {
            assert!(self.child.wait().unwrap().success(), "SIGTERM ends it in order");
        }
    }

    /// The reply to curl with these arguments; asks again while the server is too busy, which has changed nothing.
    pub(crate) fn curl(&self, path: &str, args: &[&str]) -> Reply {
        let begin = Instant::now();
        loop {
            let reply = self.curl_once(path, args);
            if reply.status != 503 || begin.elapsed() > TIME_LIMIT {
                return reply;
            }
        }
    }

    pub(crate) fn curl_once(&self, path: &str, args: &[&str]) -> Reply {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--include", "--path-as-is", "--header", "Expect:"]).args(args);
        let output = curl.arg(format!("http://{}{path}", self.address)).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path} {args:?}: {output:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, body: body.to_owned(), head: head.to_owned() }
    }

    /// The status of the reply to a head without its body.
    pub(crate) fn status_of_head(&self, head: &str) -> u16 {
        self.reply_to_head(head).0
    }

    /// The same, and the connection.
    pub(crate) fn reply_to_head(&self, head: &str) -> (u16, TcpStream) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        (line.split(' ').nth(1).unwrap_or_else(|| panic!("{line:?}")).parse().unwrap(), stream)
    }

    /// The status of a PUT of this text with the token.
    pub(crate) fn put(&self, path: &str, text: &str) -> u16 {
        self.curl(path, &["--request", "PUT", "--header", AUTHORIZATION, "--data-binary", text]).status
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Reply {
    /// The value of a field of the head; empty if it is not there.
    pub(crate) fn field(&self, name: &str) -> &str {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value).next().unwrap_or_default()
    }
}

pub(crate) fn url(store: &Path) -> String {
    format!("redb:{}", store.display())
}

pub(crate) fn token_file(folder: &Path) -> PathBuf {
    let file = folder.join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    file
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_webtable"));
    command.args(args);
    command
}

/// Whether curl is there, in a version that retries all errors; tries to install it as root.
pub(crate) fn has_curl() -> bool {
    let version = || {
        let output = Command::new("curl").arg("--version").output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let mut numbers = text.split([' ', '.']).skip(1).map(|number| number.parse::<u32>().unwrap_or(0));
        Some((numbers.next()?, numbers.next()?))
    };
    if version().is_none() {
        let mut apt = Command::new("apt-get");
        let _ = apt.args(["install", "--yes", "--no-install-recommends", "curl"]).stdin(Stdio::null()).output();
    }
    let found = version().is_some_and(|version| version >= (7, 71));
    if !found {
        eprintln!("SKIPPED: curl 7.71 or newer is not there and cannot be installed: apt-get install curl");
    }
    found
}
