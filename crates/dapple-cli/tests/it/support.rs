//! A site in a temporary directory, a server process on a free port, and a small HTTP client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A directory that is removed with the test.
pub(crate) struct Site {
    pub(crate) path: PathBuf,
}

impl Site {
    pub(crate) fn new() -> Site {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("dapple-it-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Site { path }
    }

    /// A site with a start page, for tests that only need one.
    pub(crate) fn with_index() -> Site {
        let site = Site::new();
        site.write("index.html", "<h1>start</h1>");
        site
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A running server; killed when dropped, if it still runs.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) port: u16,
    /// The line that it printed first.
    pub(crate) line: String,
    /// Its further output.
    pub(crate) stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts `dapple serve` on a free port with two workers and more options.
    pub(crate) fn start(site: &Path, options: &[&str]) -> Server {
        let mut command = dapple();
        command.arg("serve").arg(site).args(["--port", "0", "--workers", "2"]).args(options);
        Server::spawn(command)
    }

    /// As [`Server::start`], reading files through io_uring, if the kernel allows it, or through
    /// the blocking pool.
    pub(crate) fn start_with_files_by(site: &Path, io_uring: bool, options: &[&str]) -> Server {
        let mut command = dapple();
        command.env("DAPPLE_IO_URING", if io_uring { "on" } else { "off" });
        command.arg("serve").arg(site).args(["--port", "0", "--workers", "2"]).args(options);
        Server::spawn(command)
    }

    /// As [`Server::start`], with at most this many open files.
    pub(crate) fn start_short_of_files(site: &Path, files: u32) -> Server {
        let dapple = dapple();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]).arg(dapple.get_program());
        command.arg("serve").arg(site).args(["--port", "0", "--workers", "2"]);
        Server::spawn(command)
    }

    /// Starts `dapple serve` with two workers; the options give the address.
    pub(crate) fn start_at(site: &Path, options: &[&str]) -> Server {
        let mut command = dapple();
        command.arg("serve").arg(site).args(["--workers", "2"]).args(options);
        Server::spawn(command)
    }

    /// As [`Server::start`]; its log is available at the end.
    pub(crate) fn start_with_log(site: &Path, options: &[&str]) -> Server {
        let mut command = dapple();
        command.arg("serve").arg(site).args(["--port", "0", "--workers", "2"]).args(options).stderr(Stdio::piped());
        Server::spawn(command)
    }

    /// As [`Server::spawn`]; its log is available at the end.
    pub(crate) fn spawn_with_log(mut command: Command) -> Server {
        command.stderr(Stdio::piped());
        Server::spawn(command)
    }

    /// Everything that it wrote to stderr until its end.
    pub(crate) fn log_to_end(&mut self) -> String {
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }

    /// Starts `dapple proxy` on a free port of 127.0.0.1 with two workers, for origins on this
    /// machine.
    pub(crate) fn start_proxy(options: &[&str]) -> Server {
        let mut command = dapple();
        command.args(["proxy", "--port", "0", "--workers", "2", "--allow-private"]).args(options);
        Server::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let mut words = line.split_whitespace().map(|word| word.replacen("https://", "http://", 1));
        let address = words.find_map(|word| word.strip_prefix("http://127.0.0.1:").map(str::to_owned));
        let port = address.unwrap_or_else(|| panic!("no address in {line:?}")).parse().unwrap();
        Server { child, port, line, stdout }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(("127.0.0.1", self.port))
    }

    /// Sends a GET on a connection to another address.
    pub(crate) fn get_at(addr: (&str, u16), path: &str) -> Response {
        Client::connect(addr).get(path)
    }

    /// Sends a GET on a connection of its own.
    pub(crate) fn get(&self, path: &str) -> Response {
        self.connect().get(path)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Waits for the process to end, at most `limit`; with zero it only checks.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let mut status = None;
        eventually(limit, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status
    }

    /// The peak resident size of the process, in bytes.
    pub(crate) fn resident_max(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command under test, before its arguments.
pub(crate) fn dapple() -> Command {
    Command::new(env!("CARGO_BIN_EXE_dapple"))
}

/// One connection.
pub(crate) struct Client {
    reader: BufReader<TcpStream>,
}

/// One response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The number of fields with this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name)).count()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    /// Connects to an address of this machine.
    pub(crate) fn connect(addr: (&str, u16)) -> Client {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { reader: BufReader::new(stream) }
    }

    /// The status of the answer to a GET, if one arrives.
    pub(crate) fn try_get(&mut self, path: &str) -> std::io::Result<u16> {
        self.reader.get_mut().write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes())?;
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.ok_or_else(|| std::io::ErrorKind::InvalidData.into())
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.reader.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Sends, unless the server has ended the connection.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.reader.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// Ends this side of the connection.
    pub(crate) fn end(&mut self) {
        // The server may have ended the whole connection.
        let _ = self.reader.get_mut().shutdown(std::net::Shutdown::Write);
    }

    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.request("GET", path, "")
    }

    /// Sends a request and reads the response; `headers` are whole lines.
    pub(crate) fn request(&mut self, method: &str, path: &str, headers: &str) -> Response {
        self.send(format!("{method} {path} HTTP/1.1\r\nHost: test\r\n{headers}\r\n"));
        match method {
            "HEAD" => self.read_head(),
            _ => self.read_response(),
        }
    }

    /// Reads a response with its body.
    pub(crate) fn read_response(&mut self) -> Response {
        let mut response = self.read_head();
        if response.header("transfer-encoding") == Some("chunked") {
            response.body = self.read_chunks();
            return response;
        }
        let len = response.header("content-length").map_or(0, |len| len.parse().unwrap());
        response.body = vec![0; len];
        self.reader.read_exact(&mut response.body).unwrap();
        response
    }

    fn read_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let len = usize::from_str_radix(&self.read_line(), 16).expect("a chunk's length");
            let start = body.len();
            body.resize(start + len, 0);
            self.reader.read_exact(&mut body[start..]).unwrap();
            assert_eq!(self.read_line(), "", "the end of a chunk");
            if len == 0 {
                return body;
            }
        }
    }

    /// Reads the status line and the headers.
    pub(crate) fn read_head(&mut self) -> Response {
        let line = self.read_line();
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {line:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.read_line();
            match line.split_once(": ") {
                Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
                None => break assert_eq!(line, "", "the end of the headers"),
            }
        }
        Response { status, headers, body: Vec::new() }
    }

    /// Reads exactly as many bytes as `buf` holds.
    pub(crate) fn read_all(&mut self, buf: &mut [u8]) {
        self.reader.read_exact(buf).unwrap();
    }

    /// Reads everything until the server closes, or the error that ended it.
    pub(crate) fn read_to_end(&mut self) -> std::io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest).map(|_| rest)
    }

    pub(crate) fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.reader.read(buf)
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end_matches(['\r', '\n']).to_owned()
    }
}

/// Bytes that differ at every position, so that a wrong piece shows.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len.div_ceil(8)).flat_map(|_| step().to_le_bytes()).take(len).collect()
}

/// Tries until `check` holds, at most `limit`; there is no other way to wait for the state of
/// another process.
pub(crate) fn eventually(limit: Duration, mut check: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if check() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether this shows within a second; asks without a pause, like a page under load. On a busy
/// machine everything takes longer, so the three slowest questions do not count.
pub(crate) fn shows_within_a_second(mut is_shown: impl FnMut() -> bool) -> bool {
    let (start, mut slowest) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < PATIENCE {
        let asked = Instant::now();
        let is_over = is_shown();
        slowest = slowest.max(asked.elapsed());
        if is_over {
            return start.elapsed().saturating_sub(3 * slowest) < Duration::from_secs(1);
        }
    }
    false
}

/// How long a test waits for bytes before it fails.
const PATIENCE: Duration = Duration::from_secs(20);
