//! The program under test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server, which ends with the test.
pub(crate) struct Server {
    child: Child,
    /// `HOST:PORT`.
    pub(crate) address: String,
}

impl Server {
    /// Starts a server with the store `store` in a folder.
    pub(crate) fn start(folder: &Path) -> Server {
        let mut child =
            program(&["--listen", "127.0.0.1:0"], &folder.join("store")).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_suffix('/').and_then(|line| line.rsplit_once("http://"));
        let (_, address) = address.unwrap_or_else(|| panic!("the server says where it listens: {line}"));
        Server { child, address: address.to_owned() }
    }

    /// The status and the body of a reply to curl; asks again while the server is too busy.
    pub(crate) fn curl(&self, path: &str, options: &[&str]) -> (u16, String) {
        let begin = Instant::now();
        loop {
            let reply = self.curl_once(path, options);
            if reply.0 != 503 || begin.elapsed() > Duration::from_secs(60) {
                return reply;
            }
        }
    }

    fn curl_once(&self, path: &str, options: &[&str]) -> (u16, String) {
        let url = format!("http://{}{path}", self.address);
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--write-out", "\n%{http_code}"]).args(options).arg(&url);
        let text = String::from_utf8(curl.output().unwrap().stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    /// Adds the text of a file as gpg does.
    pub(crate) fn add(&self, file: &Path) -> (u16, String) {
        self.curl("/pks/add", &["--data-urlencode", &format!("keytext@{}", file.display())])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn program(args: &[&str], store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keyserver"));
    command.args(args).arg(format!("--store=redb:{}", store.display()));
    command
}
