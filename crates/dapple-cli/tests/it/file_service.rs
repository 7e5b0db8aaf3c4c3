//! `dapple files` and `dapple mount`, by the clients that people have.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A running `dapple files`.
pub(crate) struct Service {
    pub(crate) child: Child,
    /// `https://127.0.0.1:PORT`.
    pub(crate) url: String,
    pub(crate) place: PathBuf,
}

pub(crate) fn dapple(words: &[&str], place: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dapple"));
    command.args(words).current_dir(place).env("XDG_STATE_HOME", place.join("home")).env("HOME", place);
    command
}

pub(crate) fn outcome(words: &[&str], place: &Path) -> (Option<i32>, String) {
    let output = dapple(words, place).output().expect("dapple runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Waits for the line that a program prints when it is ready.
pub(crate) fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    line
}

impl Service {
    pub(crate) fn start(place: &Path, options: &[&str]) -> Service {
        let words = [&["files", "tree", "--state", "state"], options].concat();
        let mut child = dapple(&words, place).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let line = first_line(&mut child);
        let url = line.rsplit(' ').next().unwrap_or_default().trim().to_owned();
        assert!(url.starts_with("http"), "{line}");
        Service { child, url, place: place.to_owned() }
    }

    fn token(&self) -> String {
        fs::read_to_string(self.place.join("state/token")).expect("a token").trim().to_owned()
    }

    pub(crate) fn curl(&self, words: &[&str]) -> Output {
        let certificate = self.place.join("state/certificate.pem");
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert"]).arg(certificate).args(["-u", &format!("any:{}", self.token())]);
        command.args(words).output().expect("curl runs")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a signal");
    }

    pub(crate) fn stop(mut self) -> bool {
        self.signal(Signal::TERM);
        self.child.wait().expect("it ends").success()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

impl Drop for MountPoint {
    /// Also when a test fails: the kernel's calls must end.
    fn drop(&mut self) {
        let _ = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(&self.dir).output();
        let _ = self.child.kill();
    }
}

pub(crate) fn place() -> TempDir {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    fs::create_dir(place.path().join("tree")).expect("a directory");
    place
}

#[test]
fn with_nothing_set_it_encrypts_and_asks_for_its_token() {
    let place = place();
    let service = Service::start(place.path(), &["--addr", "127.0.0.1:0"]);
    for name in ["key.pem", "token", "certificate.pem"] {
        let mode = fs::metadata(place.path().join("state").join(name)).expect(name).permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    fs::write(place.path().join("upload"), vec![b'x'; 2_000_000]).expect("a file");
    let upload = place.path().join("upload");
    let put = service.curl(&["-T", upload.to_str().expect("text"), &format!("{}/a%20b", service.url)]);
    assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
    assert_eq!(fs::metadata(place.path().join("tree/a b")).expect("the file").len(), 2_000_000);
    let read = service.curl(&[&format!("{}/a%20b", service.url)]);
    assert_eq!(read.stdout.len(), 2_000_000);
    let page = service.curl(&[&format!("{}/", service.url)]);
    assert!(String::from_utf8_lossy(&page.stdout).contains("a%20b"));
    let older = service.curl(&["--tls-max", "1.2", &service.url]);
    assert!(!older.status.success(), "TLS 1.2 is refused");
    let stranger = Command::new("curl").args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", &service.url]).output();
    assert_eq!(stranger.expect("curl runs").stdout, b"401");
    let token = service.token();
    assert!(service.stop());
    let again = Service::start(place.path(), &["--addr", "127.0.0.1:0"]);
    assert_eq!(again.token(), token, "clients that know it go on");
    assert!(again.stop());
}

#[test]
fn a_refused_upload_gets_its_reply() {
    let place = place();
    let service = Service::start(place.path(), &["--addr", "127.0.0.1:0", "--read-only"]);
    fs::write(place.path().join("upload"), vec![b'x'; 8_000_000]).expect("a file");
    let upload = place.path().join("upload");
    for version in ["--http1.1", "--http2"] {
        let words =
            [version, "-o", "/dev/null", "-w", "%{http_code}", "-H", "Expect:", "-T", upload.to_str().expect("text")];
        let put = service.curl(&[&words[..], &[&format!("{}/f", service.url)]].concat());
        assert_eq!(String::from_utf8_lossy(&put.stdout), "403", "{version}: {}", String::from_utf8_lossy(&put.stderr));
        let put = service.curl(&[&words[..], &["-u", "any:wrong", &format!("{}/f", service.url)]].concat());
        assert_eq!(String::from_utf8_lossy(&put.stdout), "401", "{version}: {}", String::from_utf8_lossy(&put.stderr));
    }
    assert!(service.stop());
}

#[test]
fn users_and_rules_are_read_again_at_a_signal() {
    let place = place();
    let set = |name: &str, password: &str| {
        let child = dapple(&["files", "passwd", "users", name], place.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let mut child = child.expect("it starts");
        child.stdin.take().expect("a pipe").write_all(password.as_bytes()).expect("written");
        assert!(child.wait().expect("it ends").success());
    };
    set("ann", "correct horse\n");
    fs::write(place.path().join("rules"), "default = \"read\"\n").expect("rules");
    let service =
        Service::start(place.path(), &["--addr", "127.0.0.1:0", "--plain", "--user-file", "users", "--rules", "rules"]);
    let status = |login: &str, method: &str| {
        let url = format!("{}/d", service.url);
        let words = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-u", login, "-X", method, &url];
        String::from_utf8(Command::new("curl").args(words).output().expect("curl runs").stdout).expect("text")
    };
    assert_eq!(status("ann:correct horse", "MKCOL"), "403");
    assert_eq!(status("bob:battery staple", "MKCOL"), "401");
    set("bob", "battery staple\n");
    fs::write(place.path().join("rules"), "default = \"write\"\n").expect("rules");
    service.signal(Signal::HUP);
    // It reads them a moment later; until then the old ones count.
    while status("bob:battery staple", "MKCOL") != "201" {
        std::thread::yield_now();
        let _ = fs::remove_dir(place.path().join("tree/d"));
        assert!(service.curl_is_up(), "the service lives");
    }
    assert!(place.path().join("tree/d").is_dir());
    assert!(service.stop());
}

impl Service {
    fn curl_is_up(&self) -> bool {
        Command::new("curl").args(["-s", "-o", "/dev/null", &self.url]).status().is_ok_and(|status| status.success())
    }
}

#[test]
fn mistakes_are_named_before_anything_happens() {
    let place = place();
    let refused = |words: &[&str], code: i32, said: &str| {
        let (found, error) = outcome(words, place.path());
        assert!(found == Some(code) && error.contains(said), "{words:?}: {found:?} {error}");
    };
    refused(&["files", "nowhere"], 1, "give a directory that this user can read");
    refused(&["files"], 2, "DIR");
    refused(&["files", "tree", "--plain", "--addr", "0.0.0.0:0"], 2, "is not this machine alone");
    refused(&["files", "tree", "--tls-cert", "x"], 2, "belong together");
    refused(&["files", "tree", "--token", "short"], 2, "16 to 1024");
    refused(&["files", "tree", "--user-file", "none"], 2, "the user file none");
    refused(&["files", "tree", "--rules", "none"], 2, "the rules in none");
    refused(&["files", "passwd", "users", "a:b"], 2, "cannot be a user's name");
    refused(&["mount", "ftp://x", "tree", "--token", "x"], 2, "write https://HOST:PORT");
    refused(&["mount", "https://127.0.0.1:1", "tree", "--token", "x"], 1, "cannot reach https://127.0.0.1:1");
    refused(&["mount", "https://127.0.0.1:1", "tree"], 2, "no login");
    refused(&["mount", "https://127.0.0.1:1", "tree", "--user", "ann"], 2, "no password");
    refused(
        &["mount", "https://127.0.0.1:1", "tree", "--token", "x", "--fingerprint", "12"],
        2,
        "64 hexadecimal digits",
    );
    refused(&["umount", "tree"], 1, "cannot unmount");
    let first = Service::start(place.path(), &["--addr", "127.0.0.1:0"]);
    let addr = first.url.trim_start_matches("https://").to_owned();
    refused(&["files", "tree", "--state", "state", "--addr", &addr], 1, "is taken");
    let wrong = "0".repeat(64);
    refused(&["mount", &first.url, "tree", "--token", "x", "--fingerprint", &wrong], 1, "is not the one stored");
    refused(&["mount", &first.url, "tree", "--token", "wrong"], 1, "401");
    assert!(first.stop());
}

#[test]
fn every_option_is_documented() {
    let documented = include_str!("../../../../docs/files.md");
    let limits = include_str!("../../../../docs/limits.md");
    for command in ["files", "mount"] {
        let output = dapple(&[command, "--help"], Path::new("/")).output().expect("dapple runs");
        let help = String::from_utf8(output.stdout).expect("text");
        let options: Vec<&str> =
            help.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split(' ').next()).collect();
        assert!(options.len() > 5, "{options:?}");
        for option in options.into_iter().filter(|option| *option != "help") {
            let named = format!("`--{option}");
            assert!(documented.contains(&named) || limits.contains(&named), "--{option} is not in docs/files.md");
        }
    }
}

/// A mounted directory.
pub(crate) struct MountPoint {
    pub(crate) child: Child,
    pub(crate) dir: PathBuf,
}

impl MountPoint {
    pub(crate) fn new(service: &Service, name: &str) -> MountPoint {
        let dir = service.place.join(name);
        fs::create_dir_all(&dir).expect("a directory");
        let mut command = dapple(&["mount", &service.url, name], &service.place);
        command.env("DAPPLE_MOUNT_TOKEN", service.token()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let line = first_line(&mut child);
        assert!(line.contains("is mounted at"), "{line}");
        MountPoint { child, dir }
    }

    pub(crate) fn unmount(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("a signal");
        assert!(self.child.wait().expect("it ends").success());
        assert!(fs::read_dir(&self.dir).expect("a directory").next().is_none(), "it is empty again");
    }
}

/// Whether this machine can mount; says why not.
pub(crate) fn can_mount() -> bool {
    let has_program = Command::new("fusermount3").arg("--version").output().is_ok();
    if !has_program {
        let _ = Command::new("apt-get").args(["install", "-y", "-qq", "fuse3"]).output();
    }
    let can = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
        && Command::new("fusermount3").arg("--version").output().is_ok();
    if !can {
        println!("skipped: there is no /dev/fuse, or no fusermount3");
    }
    can
}

#[test]
fn two_mounts_see_each_others_changes_at_once() {
    if !can_mount() {
        return;
    }
    let place = place();
    let service = Service::start(place.path(), &["--addr", "127.0.0.1:0", "--lease-s", "60"]);
    let (one, two) = (MountPoint::new(&service, "one"), MountPoint::new(&service, "two"));
    let (a, b) = (one.dir.as_path(), two.dir.as_path());
    assert!(!b.join("f").exists(), "the second one knows that the name is free");
    fs::write(a.join("f"), "first").expect("written");
    assert_eq!(fs::read_to_string(b.join("f")).expect("read"), "first");
    // In a new directory, of which the mount knows that it is empty, too.
    fs::create_dir(a.join("new")).expect("made");
    let too_long = fs::metadata(a.join("new").join("x".repeat(256))).expect_err("no such name can be");
    assert_eq!(too_long.kind(), std::io::ErrorKind::InvalidFilename);
    fs::remove_dir(a.join("new")).expect("removed");
    fs::write(b.join("f"), "second and longer").expect("written");
    assert_eq!(fs::read_to_string(a.join("f")).expect("read"), "second and longer");
    fs::create_dir(a.join("d")).expect("made");
    fs::rename(a.join("f"), a.join("d/g")).expect("renamed");
    assert!(!b.join("f").exists() && b.join("d/g").exists());
    std::os::unix::fs::symlink("d/g", b.join("l")).expect("a link");
    assert_eq!(fs::read_to_string(a.join("l")).expect("read"), "second and longer");
    fs::set_permissions(a.join("d/g"), fs::Permissions::from_mode(0o640)).expect("changed");
    assert_eq!(fs::metadata(b.join("d/g")).expect("attributes").mode() & 0o777, 0o640);
    let big: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
    fs::write(a.join("big"), &big).expect("written");
    assert!(
        fs::read(b.join("big")).expect("read") == big && fs::read(place.path().join("tree/big")).expect("read") == big
    );
    // Open files outlive their names.
    let mut open = fs::File::open(a.join("d/g")).expect("open");
    fs::remove_file(b.join("d/g")).expect("removed");
    let mut text = String::new();
    open.read_to_string(&mut text).expect("read");
    assert_eq!((text.as_str(), open.metadata().expect("attributes").len()), ("second and longer", 17));
    drop(open);
    fs::remove_file(a.join("l")).expect("removed");
    fs::remove_dir(a.join("d")).expect("removed");
    // A change over WebDAV is seen, too.
    let put = service.curl(&[
        "-T",
        place.path().join("state/key.pem").to_str().expect("text"),
        &format!("{}/big", service.url),
    ]);
    assert!(put.status.success());
    assert!(fs::read(a.join("big")).expect("read").starts_with(b"-----BEGIN"));
    one.unmount();
    two.unmount();
    assert!(service.stop());
}

#[test]
fn a_mount_goes_on_with_a_server_that_started_anew() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mut service = Service::start(place.path(), &["--addr", "127.0.0.1:0"]);
    let addr = service.url.trim_start_matches("https://").to_owned();
    let mount = MountPoint::new(&service, "mounted");
    // A process of its own: one that starts the next server must not wait for it because of a file that it has open.
    let script =
        "exec 3>\"$0\"; while read -r line; do printf '%s\\n' \"$line\" >&3 && sync \"$0\" && echo written; done";
    let mut writer = Command::new("sh")
        .args(["-c", script])
        .arg(mount.dir.join("log"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = writer.stdin.take().expect("a pipe");
    let mut answers = BufReader::new(writer.stdout.take().expect("a pipe")).lines();
    let mut written = || assert_eq!(answers.next().expect("an answer").expect("text"), "written");
    for round in 0..5 {
        writeln!(lines, "round {round}").expect("sent");
        written();
        service.child.kill().expect("killed");
        service.child.wait().expect("it ended");
        // While there is no server: the call waits for the next one.
        writeln!(lines, "between").expect("sent");
        service = Service::start(place.path(), &["--addr", &addr]);
        written();
    }
    drop(lines);
    assert!(writer.wait().expect("it ends").success());
    let expected: String = (0..5).map(|round| format!("round {round}\nbetween\n")).collect();
    assert_eq!(fs::read_to_string(place.path().join("tree/log")).expect("the file"), expected);
    assert_eq!(fs::read_to_string(mount.dir.join("log")).expect("the file"), expected);
    mount.unmount();
    assert!(service.stop());
}

#[test]
fn changes_by_other_programs_on_the_server_are_seen() {
    if !can_mount() {
        return;
    }
    let place = place();
    let tree = place.path().join("tree");
    fs::write(tree.join("f"), "first").expect("a file");
    // A lease of an hour: only a recall ends it in time.
    let service = Service::start(place.path(), &["--addr", "127.0.0.1:0", "--lease-s", "3600"]);
    let mount = MountPoint::new(&service, "mounted");
    let seen = |name: &str| fs::read_to_string(mount.dir.join(name)).ok();
    let await_seen = |name: &str, wanted: Option<&str>| {
        while seen(name).as_deref() != wanted {
            std::thread::yield_now();
        }
    };
    assert_eq!(seen("f").as_deref(), Some("first"));
    assert!(seen("new").is_none());
    let names = || fs::read_dir(&mount.dir).expect("a listing").count();
    assert_eq!(names(), 1);
    // This process is another one than the server.
    fs::write(tree.join("f"), "second, longer").expect("written");
    await_seen("f", Some("second, longer"));
    fs::write(tree.join("new"), "made").expect("written");
    await_seen("new", Some("made"));
    while names() != 2 {
        std::thread::yield_now();
    }
    fs::rename(tree.join("new"), tree.join("f")).expect("renamed");
    await_seen("f", Some("made"));
    await_seen("new", None);
    fs::remove_file(tree.join("f")).expect("removed");
    await_seen("f", None);
    mount.unmount();
    assert!(service.stop());
}

#[test]
fn writes_that_a_mount_keeps_for_a_moment_are_seen_by_others() {
    if !can_mount() {
        return;
    }
    let place = place();
    let service = Service::start(place.path(), &["--addr", "127.0.0.1:0"]);
    let (one, two) = (MountPoint::new(&service, "one"), MountPoint::new(&service, "two"));
    let mut expected = String::new();
    let mut file = fs::File::create(one.dir.join("f")).expect("made");
    for round in 0..20 {
        let line = format!("line {round}\n");
        file.write_all(line.as_bytes()).expect("written");
        expected.push_str(&line);
        match round % 4 {
            0 => assert_eq!(fs::read_to_string(two.dir.join("f")).expect("read"), expected, "another mount"),
            1 => {
                let read = service.curl(&[&format!("{}/f", service.url)]);
                assert_eq!(String::from_utf8_lossy(&read.stdout), expected, "WebDAV");
            }
            2 => {
                let len = fs::metadata(two.dir.join("f")).expect("attributes").len();
                assert_eq!(len, expected.len() as u64, "attributes");
            }
            _ => assert_eq!(fs::read_to_string(one.dir.join("f")).expect("read"), expected, "the mount itself"),
        }
    }
    // Permissions and times that are set while it is open arrive after the writes before them.
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    let mut new = fs::File::create_new(one.dir.join("new")).expect("made");
    new.write_all(b"text").expect("written");
    new.set_permissions(fs::Permissions::from_mode(0o640)).expect("set");
    new.set_modified(time).expect("set");
    let found = fs::metadata(two.dir.join("new")).expect("attributes");
    assert_eq!((found.len(), found.mode() & 0o777, found.modified().expect("a time")), (4, 0o640, time));
    new.write_all(b"more").expect("written");
    drop(new);
    let found = fs::metadata(place.path().join("tree/new")).expect("attributes");
    assert!(found.len() == 8 && found.modified().expect("a time") > time, "a write after it counts");
    // Two writers in turn.
    let mut other = fs::OpenOptions::new().append(true).open(two.dir.join("f")).expect("open");
    for round in 0..10 {
        let line = format!("turn {round}\n");
        if round % 2 == 0 { other.write_all(line.as_bytes()) } else { file.write_all(line.as_bytes()) }
            .expect("written");
        expected.push_str(&line);
        if round % 2 == 0 {
            // The other one does not append: it goes on where it was.
            std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).expect("the end");
        }
    }
    drop((file, other));
    assert_eq!(fs::read_to_string(place.path().join("tree/f")).expect("read"), expected);
    one.unmount();
    two.unmount();
    assert!(service.stop());
}

#[test]
fn a_directory_is_checked_without_serving_it() {
    let place = place();
    let output = dapple(&["files", "check", "tree"], place.path()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.lines().count() == 6, "{text}");
    assert!(text.contains("yes no path leads out of it") && text.contains("yes this user can write there"), "{text}");
    assert!(fs::read_dir(place.path().join("tree")).expect("a directory").next().is_none(), "nothing is left there");
    let (code, error) = outcome(&["files", "check", "nowhere"], place.path());
    assert!(code == Some(1) && error.contains("give a directory that this user can read"), "{error}");
}

#[test]
fn a_token_is_not_sent_in_clear_to_another_machine() {
    let place = place();
    fs::create_dir(place.path().join("m")).expect("a directory");
    for url in ["http://192.0.2.1:1", "http://files.example:8443", "HTTP://192.0.2.1:1", "http://localhost@192.0.2.1:1"]
    {
        let (code, said) = outcome(&["mount", url, "m", "--token", "0123456789abcdef"], place.path());
        assert_eq!(code, Some(2), "{url}: {said}");
        assert!(said.contains("https://") && said.contains("--plain"), "{url}: {said}");
    }
}

#[test]
fn changes_are_written_to_the_audit_log() {
    let place = place();
    let service = Service::start(place.path(), &["--addr", "127.0.0.1:0", "--audit-log", "audit"]);
    let url = |path: &str| format!("{}{path}", service.url);
    for words in [
        &["-X", "PUT", "-d", "x", &url("/a%20b")][..],
        &["-X", "PUT", "-d", "x", &url("/none/f")],
        &["-X", "MOVE", "-H", &format!("Destination: {}", url("/%22c")), &url("/a%20b")],
        &["-X", "PROPFIND", "-H", "Depth: 1", &url("/")],
        &[&url("/")],
        &["-X", "DELETE", &url("/%22c")],
    ] {
        assert!(service.curl(words).status.success(), "{words:?}");
    }
    if can_mount() {
        let mount = MountPoint::new(&service, "m");
        fs::create_dir(mount.dir.join("d")).expect("a directory");
        fs::write(mount.dir.join("d/f"), "data").expect("a file");
        fs::remove_file(mount.dir.join("d/f")).expect("removed");
        assert!(fs::remove_dir(mount.dir.join("none")).is_err());
        mount.unmount();
    }
    assert!(service.stop());
    let log = fs::read_to_string(place.path().join("audit")).expect("the log");
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect();
    let of = |name: &str| -> Vec<(&str, &str)> {
        let found = lines.iter().filter(|line| line["call"] == *name);
        found.map(|line| (line["path"].as_str().unwrap_or(""), line["result"].as_str().unwrap_or(""))).collect()
    };
    assert_eq!(of("PUT"), [("/a b", "done"), ("/none/f", "refused 409")]);
    assert_eq!((of("MOVE"), of("DELETE")), (vec![("/a b", "done")], vec![("/\"c", "done")]));
    assert!(of("PROPFIND").is_empty() && of("GET").is_empty());
    let moved = lines.iter().find(|line| line["call"] == "MOVE").expect("a line");
    assert_eq!(
        (&moved["to"], &moved["user"], &moved["address"]),
        (&"/\"c".into(), &"token".into(), &"127.0.0.1".into())
    );
    if can_mount() {
        assert_eq!((of("mkdir"), of("unlink")), (vec![("/d", "done")], vec![("/d/f", "done")]));
        assert!(
            log.contains("\"/d/f\"") && (of("create").len() + of("open").len(), of("write").len()) == (1, 1),
            "{log}"
        );
    }
    // A full disk stops no change.
    let full = Service::start(place.path(), &["--addr", "127.0.0.1:0", "--audit-log", "/dev/full"]);
    let put = full.curl(&["-X", "PUT", "-d", "x", "-w", "%{http_code}", &format!("{}/g", full.url)]);
    assert_eq!(put.stdout, b"201");
    assert!(full.stop());
}

#[test]
fn the_numbers_of_the_service_are_shown_to_those_that_log_in() {
    let place = place();
    let service = Service::start(place.path(), &["--addr", "127.0.0.1:0", "--memory-limit-mb", "4096"]);
    assert!(service.curl(&["-X", "PUT", "-d", "x", &format!("{}/f", service.url)]).status.success());
    let status = format!("{}/-/status", service.url);
    let shown = service.curl(&[&status]);
    let page: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!((&page["uploads"], &page["version"]), (&1.into(), &env!("CARGO_PKG_VERSION").into()));
    assert!(page["requests"].as_u64().is_some_and(|requests| requests >= 1) && page["leases"]["granted"].is_u64());
    let stranger = Command::new("curl").args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", &status]).output();
    assert_eq!(stranger.expect("curl runs").stdout, b"401");
    assert!(service.stop());
    // A limit that any process is above: only small calls of mounts are answered.
    let small = Service::start(place.path(), &["--addr", "127.0.0.1:0", "--memory-limit-mb", "1"]);
    let url = format!("{}/f", small.url);
    let code = || small.curl(&["-o", "/dev/null", "-w", "%{http_code}", &url]).stdout;
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while code() != b"503" {
        assert!(std::time::Instant::now() < end, "it still answers");
    }
    assert!(small.stop());
}
