//! The programs under test, the registry among them, and curl.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A running program, which ends with the test.
pub(crate) struct Program {
    child: Child,
    /// `http://HOST:PORT`.
    pub(crate) base: String,
}

/// A reply to curl.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The value of a field, or nothing.
    pub(crate) fn field(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Width and height of a picture.
    pub(crate) fn size(&self) -> (u32, u32) {
        let image = image::load_from_memory(&self.body).unwrap();
        (image.width(), image.height())
    }
}

impl Program {
    fn start(mut command: Command) -> Program {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let base = line.trim_end().strip_suffix('/').and_then(|line| line.rsplit_once(' '));
        let base = base.unwrap_or_else(|| panic!("the program says where it listens: {line}")).1.to_owned();
        Program { child, base }
    }

    /// The registry, with some devices in it.
    pub(crate) fn registry(folder: &Path) -> Program {
        let mut command = Command::new(preferences());
        command.args(["--listen", "127.0.0.1:0"]).arg(format!("--store=redb:{}/registry", folder.display()));
        let registry = Program::start(command);
        registry.put("devices/phone", r#"{"width": 320, "height": 240, "scripts": false, "frames": false}"#);
        registry
            .put("devices/pager", r#"{"width": 64, "height": 64, "color_bits": 1, "styles": false, "scripts": false}"#);
        registry.put("devices/browser", r#"{"width": 320, "height": 240, "frames": false}"#);
        registry.put("users/ann", r#"{"devices": {"phone": {"width": 100}}}"#);
        registry
    }

    pub(crate) fn put(&self, path: &str, document: &str) {
        let reply = curl(&["-X", "PUT", "-H", "If-None-Match: *", "-d", document, &format!("{}/{path}", self.base)]);
        assert_eq!(reply.status, 204, "{reply:?}");
    }

    pub(crate) fn proxy(folder: &Path, registry: &Program, args: &[&str]) -> Program {
        let mut command = weakproxy(folder);
        command.args(["--listen", "127.0.0.1:0", "--registry", &registry.base, "--allow-private"]).args(args);
        Program::start(command)
    }

    /// The reply to curl through this proxy, from a device.
    pub(crate) fn get(&self, login: &str, args: &[&str], url: &str) -> Reply {
        let login = format!("{login}:");
        let all = ["-x", &self.base, "--proxy-user", &login, url];
        curl(&[&all[..], args].concat())
    }

    pub(crate) fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program under test, with its store in a folder.
pub(crate) fn weakproxy(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weakproxy"));
    command.arg(format!("--store=redb:{}/answers", folder.display()));
    command
}

/// The reply to curl; asks again while the server is too busy.
pub(crate) fn curl(args: &[&str]) -> Reply {
    let begin = Instant::now();
    loop {
        let reply = curl_once(args);
        if reply.status != 503 || begin.elapsed() > Duration::from_secs(60) {
            return reply;
        }
    }
}

fn curl_once(args: &[&str]) -> Reply {
    let output = Command::new("curl").args(["--silent", "--include", "--suppress-connect-headers"]).args(args).output();
    let output = output.unwrap().stdout;
    let end = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(output.len(), |end| end + 4);
    let head = String::from_utf8(output[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Reply { status, head, body: output[end..].to_vec() }
}

/// The registry's program, which cargo builds if it is not there.
fn preferences() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--package", "preferences", "--message-format", "json"]);
        let output = cargo.stderr(Stdio::inherit()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let path =
            text.lines().filter_map(|line| line.split_once("\"executable\":\"")?.1.split('"').next()).next_back();
        path.expect("cargo builds the registry").into()
    })
}

/// Whether a program is there; tries to install it as root.
pub(crate) fn has(program: &str) -> bool {
    let is_there = || Command::new(program).arg("--version").output().is_ok();
    if !is_there() {
        let mut apt = Command::new("apt-get");
        let _ = apt.args(["install", "--yes", "--no-install-recommends", program]).stdin(Stdio::null()).output();
    }
    let found = is_there();
    if !found {
        eprintln!("SKIPPED: {program} is not there and cannot be installed: apt-get install {program}");
    }
    found
}
