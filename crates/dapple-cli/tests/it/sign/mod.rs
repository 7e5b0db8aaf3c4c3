//! `dapple sign` and `dapple sign-client` as real processes, and tasks over plain sockets.

mod answers;
mod hostile;
mod hosts;
mod memory;
mod overload;
mod processes;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use md5::{Digest, Md5};

pub(crate) const VARIANTS: [&str; 4] = ["threaded", "wrapped", "pipelined", "replicated"];

/// A running server; killed when dropped, if it still runs.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Server {
    /// Starts a server on a free port, with the secrets "one" and "two".
    pub(crate) fn start(variant: &str, folder: &Path, options: &[&str]) -> Server {
        let mut command = command(variant, folder);
        command.args(options);
        Server::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").and_then(|rest| rest.split(',').next());
        Server { address: address.unwrap_or_else(|| panic!("it did not start: {line:?}")).to_owned(), child }
    }

    pub(crate) fn terminate(&self) {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn command(variant: &str, folder: &Path) -> Command {
    command_at("127.0.0.1:0", variant, folder)
}

pub(crate) fn command_at(address: &str, variant: &str, folder: &Path) -> Command {
    let (first, second) = (folder.join("first"), folder.join("second"));
    std::fs::write(&first, "one").unwrap();
    std::fs::write(&second, "two").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dapple"));
    command.args(["sign", "--variant", variant, "--addr", address, "--workers", "2"]);
    command.arg("--log").arg(folder.join("log"));
    command.arg("--first-secret").arg(first).arg("--second-secret").arg(second);
    command
}

/// The server's answer to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Signed { id: u64, sequence: u64, first: [u8; 16], second: [u8; 16] },
    Refused { id: u64, reason: u8, retry_after_ms: u32 },
    Failed { id: u64, code: u8, text: String },
    Error { code: u8, text: String },
}

/// A connection that speaks the protocol of `docs/sign.md`, with code of its own.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn connect(server: &Server) -> Client {
        let mut client = Client::connect_silent(server);
        client.0.write_all(b"\0\0\0\x07\x01DSGN\x01\x01").unwrap();
        let welcome = client.frame().unwrap();
        assert_eq!((welcome[0], &welcome[1..6]), (2, &b"DSGN\x01"[..]));
        client
    }

    pub(crate) fn connect_silent(server: &Server) -> Client {
        let stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(stream)
    }

    pub(crate) fn send(&mut self, id: u64, body: &[u8]) {
        self.try_send(id, body).unwrap();
    }

    pub(crate) fn try_send(&mut self, id: u64, body: &[u8]) -> std::io::Result<()> {
        let len = u32::try_from(1 + 8 + body.len()).unwrap();
        self.0.write_all(&[&len.to_be_bytes()[..], &[3], &id.to_be_bytes(), body].concat())
    }

    /// The next frame, without its length; `None` at the end.
    pub(crate) fn frame(&mut self) -> Option<Vec<u8>> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len).ok()?;
        let mut frame = vec![0; u32::from_be_bytes(len) as usize];
        self.0.read_exact(&mut frame).ok()?;
        Some(frame)
    }

    pub(crate) fn answer(&mut self) -> Option<Answer> {
        let frame = self.frame()?;
        let (kind, rest) = (frame[0], &frame[1..]);
        let number = |at: usize| u64::from_be_bytes(rest[at..at + 8].try_into().unwrap());
        Some(match kind {
            4 => {
                assert_eq!(rest.len(), 48);
                let (first, second) = (rest[16..32].try_into().unwrap(), rest[32..48].try_into().unwrap());
                Answer::Signed { id: number(0), sequence: number(8), first, second }
            }
            5 => {
                let retry_after_ms = u32::from_be_bytes(rest[9..13].try_into().unwrap());
                Answer::Refused { id: number(0), reason: rest[8], retry_after_ms }
            }
            6 => Answer::Failed { id: number(0), code: rest[8], text: String::from_utf8(rest[9..].to_vec()).unwrap() },
            7 => Answer::Error { code: rest[0], text: String::from_utf8(rest[1..].to_vec()).unwrap() },
            other => panic!("a frame of kind {other}"),
        })
    }
}

/// The digest of a task with a secret.
pub(crate) fn digest(secret: &str, body: &[u8]) -> [u8; 16] {
    Md5::digest([secret.as_bytes(), body].concat()).into()
}

/// The body of task number `id`.
pub(crate) fn body(id: u64) -> Vec<u8> {
    (0..5_000_u64).map(|at| (at * 7 + id * 13 + (id >> 8)) as u8).collect()
}

/// Reads the log: the number of each task and its first digest, in order. Checks each record.
pub(crate) fn log(folder: &Path) -> Vec<(u64, [u8; 16])> {
    let log = std::fs::read(folder.join("log")).unwrap();
    assert_eq!(log.len() % 128, 0);
    let records = log.chunks(128).zip(1_u64..).map(|(record, sequence)| {
        assert_eq!(&record[..8], b"DSIGLOG1");
        assert_eq!(record[8..16], sequence.to_be_bytes());
        assert_eq!(record[112..], Md5::digest(&record[..112])[..]);
        (u64::from_be_bytes(record[24..32].try_into().unwrap()), record[32..48].try_into().unwrap())
    });
    records.collect()
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
