//! Locks of files over two mounts, by the programs that take them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::file_service::{MountPoint, Service, can_mount, place};

/// Obeys lines: `lock NAME KIND START LEN` (KIND: w, r; with + it waits), `unlock NAME START LEN`, `test NAME START LEN`, `flock NAME`,
/// `write NAME TEXT`, `close NAME`, `add NAME`.
const PROGRAM: &str = r#"
import fcntl, os, struct, sys
files = {}
def file(name):
    if name not in files:
        files[name] = open(name, "r+b", buffering=0)
    return files[name]
for line in sys.stdin:
    what, name, *rest = line.split()
    said = "yes"
    try:
        if what == "lock":
            kind = fcntl.LOCK_EX if rest[0][0] == "w" else fcntl.LOCK_SH
            fcntl.lockf(file(name), kind | (0 if rest[0].endswith("+") else fcntl.LOCK_NB), int(rest[2]), int(rest[1]))
        elif what == "unlock":
            fcntl.lockf(file(name), fcntl.LOCK_UN, int(rest[1]), int(rest[0]))
        elif what == "test":
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, int(rest[0]), int(rest[1]), 0)
            kind, _, start, length, pid = struct.unpack("hhqqi4x", fcntl.fcntl(file(name), fcntl.F_GETLK, asked))
            said = "free" if kind == fcntl.F_UNLCK else f"{kind} {start} {length}"
        elif what == "flock":
            fcntl.flock(file(name), fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif what == "write":
            os.pwrite(file(name).fileno(), rest[0].encode(), 0)
            os.fsync(file(name).fileno())
        elif what == "close":
            files.pop(name).close()
        elif what == "add":
            for _ in range(int(rest[0])):
                fcntl.lockf(file(name), fcntl.LOCK_EX)
                number = int(os.pread(file(name).fileno(), 20, 0))
                os.pwrite(file(name).fileno(), b"%d" % (number + 1), 0)
                fcntl.lockf(file(name), fcntl.LOCK_UN)
    except OSError as error:
        said = os.strerror(error.errno)
    print(said, flush=True)
"#;

/// A program on a mount.
struct Program {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Program {
    fn new(dir: &Path) -> Program {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Program { child, answers }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{line}").expect("sent");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.answer()
    }

    fn is_blocked(&self) -> bool {
        let wchan = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        wchan.contains("State:\tS") || wchan.contains("State:\tD")
    }

    fn end(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a signal");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn has_python() -> bool {
    let has = Command::new("python3").arg("--version").output().is_ok();
    if !has {
        println!("skipped: there is no python3");
    }
    has
}

const HELD: &str = "Resource temporarily unavailable";

#[test]
fn locks_hold_among_mounts_until_they_are_given_back() {
    if !can_mount() || !has_python() {
        return;
    }
    let place = place();
    fs::write(place.path().join("tree/f"), "0").expect("a file");
    fs::write(place.path().join("tree/count"), "0").expect("a file");
    let service = Service::start(place.path(), &["--addr", "127.0.0.1:0"]);
    let (one, two) = (MountPoint::new(&service, "one"), MountPoint::new(&service, "two"));
    let (mut a, mut b) = (Program::new(&one.dir), Program::new(&two.dir));
    assert_eq!(a.ask("lock f w 0 10"), "yes");
    assert_eq!(
        (b.ask("lock f w 5 10"), b.ask("lock f r 9 1"), b.ask("lock f w 10 10")),
        (HELD.into(), HELD.into(), "yes".into())
    );
    assert_eq!((b.ask("test f 0 100"), a.ask("test f 0 10")), ("1 0 10".into(), "free".into()));
    assert_eq!(
        (a.ask("test f 0 0"), b.ask("lock f r 20 5"), a.ask("lock f r 20 5")),
        ("1 10 10".into(), "yes".into(), "yes".into())
    );
    // Parts of a lock are given back, and the rest when any descriptor of the file is closed.
    assert_eq!(
        (a.ask("unlock f 2 3"), b.ask("lock f w 2 3"), b.ask("lock f w 5 1")),
        ("yes".into(), "yes".into(), HELD.into())
    );
    b.send("lock f w+ 0 10");
    assert_eq!(a.ask("close f"), "yes");
    assert_eq!((b.answer(), a.ask("lock f r 0 1")), ("yes".into(), HELD.into()));
    // A process that ends gives its locks back, and one that waits can be ended.
    a.send("lock f w+ 0 1");
    let mut waits = Program::new(&one.dir);
    waits.send("lock f w+ 0 1");
    while !waits.is_blocked() {}
    let began = Instant::now();
    waits.end(Signal::TERM);
    assert!(began.elapsed() < Duration::from_secs(8), "a signal ends the wait");
    b.end(Signal::KILL);
    assert_eq!(a.answer(), "yes");
    let mut b = Program::new(&two.dir);
    assert_eq!((b.ask("lock f w 0 1"), a.ask("close f"), b.ask("flock f")), (HELD.into(), "yes".into(), "yes".into()));
    assert_eq!((a.ask("flock f"), b.ask("close f")), (HELD.into(), "yes".into()));
    while a.ask("flock f") != "yes" {}
    let flock = |dir: &Path| Command::new("flock").args(["-n", "f", "true"]).current_dir(dir).status();
    if let Ok(status) = flock(&two.dir) {
        assert!(!status.success());
        assert_eq!(a.ask("close f"), "yes");
        // The kernel tells of the end of such a lock after the close.
        while !flock(&two.dir).expect("it runs").success() {}
        while !flock(&one.dir).expect("it runs").success() {}
        (0..20).for_each(|_| assert!(flock(&one.dir).expect("it runs").success(), "one after another in a mount"));
    }
    // Programs that add to one number.
    let mut all: Vec<_> = [&one, &two, &one, &two].map(|mount| Program::new(&mount.dir)).into_iter().collect();
    all.iter_mut().for_each(|program| program.send("add count 25"));
    all.iter_mut().for_each(|program| assert_eq!(program.answer(), "yes"));
    assert_eq!(fs::read_to_string(place.path().join("tree/count")).expect("the file"), "100");
    drop((a, b, all));
    one.unmount();
    two.unmount();
    assert!(service.stop());
}

#[test]
fn locks_outlast_the_server_and_end_with_their_mount() {
    if !can_mount() || !has_python() {
        return;
    }
    let place = place();
    fs::write(place.path().join("tree/f"), "0").expect("a file");
    let mut service = Service::start(place.path(), &["--addr", "127.0.0.1:0", "--lease-s", "2"]);
    let addr = service.url.trim_start_matches("https://").to_owned();
    let (one, two) = (MountPoint::new(&service, "one"), MountPoint::new(&service, "two"));
    let (mut a, mut b) = (Program::new(&one.dir), Program::new(&two.dir));
    assert_eq!((a.ask("lock f w 0 1"), b.ask("lock f w 0 1")), ("yes".into(), HELD.into()));
    service.child.kill().expect("killed");
    service.child.wait().expect("it ended");
    service = Service::start(place.path(), &["--addr", &addr, "--lease-s", "2"]);
    assert_eq!(a.ask("write f 1"), "yes", "it has its lock again");
    assert_eq!(b.ask("lock f w 0 1"), HELD);
    // A mount that is stopped cannot answer.
    kill_process(Pid::from_child(&one.child), Signal::STOP).expect("a signal");
    assert_eq!(b.ask("lock f w+ 0 1"), "yes");
    assert_eq!(b.ask("write f 2"), "yes");
    kill_process(Pid::from_child(&one.child), Signal::CONT).expect("a signal");
    assert_eq!(a.ask("write f 3"), "Input/output error", "its program believes that it has the lock");
    assert_eq!((a.ask("close f"), b.ask("close f")), ("yes".into(), "yes".into()));
    assert_eq!((a.ask("lock f w 0 1"), a.ask("write f 4")), ("yes".into(), "yes".into()));
    drop((a, b));
    one.unmount();
    two.unmount();
    assert!(service.stop());
}

#[test]
fn a_database_is_shared_by_two_mounts() {
    if !can_mount() || Command::new("sqlite3").arg("--version").output().is_err() {
        return;
    }
    let place = place();
    let service = Service::start(place.path(), &["--addr", "127.0.0.1:0"]);
    let (one, two) = (MountPoint::new(&service, "one"), MountPoint::new(&service, "two"));
    let sqlite = |dir: &Path, commands: &str| {
        let mut command = Command::new("sqlite3");
        command.args(["-cmd", ".timeout 60000", "d.db", commands]).current_dir(dir).stdout(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let said = |child: Child| {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    };
    said(sqlite(&one.dir, "create table t (n)"));
    let inserts = |from: u32| (from..from + 20).map(|n| format!("insert into t values ({n});")).collect::<String>();
    let both = [sqlite(&one.dir, &inserts(0)), sqlite(&two.dir, &inserts(100))];
    both.into_iter().for_each(|child| drop(said(child)));
    let found = said(sqlite(&two.dir, "pragma integrity_check; select count(distinct n), count(*) from t"));
    assert_eq!(found, "ok\n40|40\n");
    one.unmount();
    two.unmount();
    assert!(service.stop());
}
