//! The program as its users meet it: curl and mpg123.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const AUTHORIZATION: &str = "Authorization: Bearer 0123456789abcdef";
/// A frame of MPEG-1 Layer III, mono, 44.1 kHz, 128 kbit/s, with silence.
const FRAME_LEN: usize = 417;
/// The samples of a frame, of two bytes each.
const FRAME_PCM_LEN: usize = 1152 * 2;

/// A running server, which ends with the test.
struct Server {
    child: Child,
    base: String,
}

impl Server {
    fn start(folder: &Path) -> Server {
        Server::start_with(folder, &[])
    }

    fn start_with(folder: &Path, args: &[&str]) -> Server {
        Server::run(program(folder, args))
    }

    fn run(mut program: Command) -> Server {
        let mut child = program.args(["--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().rsplit_once("listening on ").unwrap_or_else(|| panic!("{line}")).1;
        Server { base: format!("http://{address}"), child }
    }

    /// The status and the body of a reply to curl; asks again while the server is too busy.
    fn curl(&self, path: &str, args: &[&str]) -> (u16, Vec<u8>) {
        let begin = Instant::now();
        loop {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--write-out", "%{stderr}%{http_code}"]).args(args);
            let Output { stdout, stderr, .. } = curl.arg(format!("{}{path}", self.base)).output().unwrap();
            let status = String::from_utf8(stderr).unwrap().parse().unwrap();
            if status != 503 || begin.elapsed() > Duration::from_secs(60) {
                return (status, stdout);
            }
        }
    }

    fn status(&self, path: &str, args: &[&str]) -> u16 {
        self.curl(path, args).0
    }

    /// The status line and the fields of a reply to a method, a target and a field, and its connection.
    fn send(&self, head: &str) -> (Vec<String>, TcpStream) {
        let mut stream = TcpStream::connect(self.base.strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (target, fields) = head.split_once('\n').unwrap_or((head, "x: y"));
        write!(stream, "{target} HTTP/1.1\r\nhost: x\r\n{fields}\r\n\r\n").unwrap();
        let lines = BufReader::new(&stream).lines().map(Result::unwrap);
        (lines.take_while(|line| !line.is_empty()).collect(), stream)
    }

    fn put(&self, name: &str, rules: &str) -> u16 {
        self.status(&format!("/streams/{name}"), &["--request", "PUT", "--header", AUTHORIZATION, "--data", rules])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(folder: &Path, args: &[&str]) -> Command {
    let token = folder.join("token");
    std::fs::write(&token, "0123456789abcdef\n").unwrap();
    let mut command = without_token(folder);
    command.arg("--token-file").arg(token).args(args);
    command
}

fn without_token(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jukebox"));
    command.arg("--music").arg(folder.join("music"));
    command.arg(format!("--store=redb:{}", folder.join("store").display()));
    command
}

/// A folder of music: paths, frames, and artists.
fn music(folder: &Path) {
    for (path, frames, artist) in [
        ("jazz/one & two.mp3", 10, "Ann"),
        ("jazz/live.mp3", 20, "Ann"),
        ("rock/three.mp3", 40, "Ann"),
        ("rock/four.mp3", 80, "Ben"),
    ] {
        let file = folder.join("music").join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let mut bytes = Vec::new();
        for _ in 0..frames {
            bytes.extend([0xff, 0xfb, 0x90, 0xc4]);
            bytes.resize(bytes.len() + FRAME_LEN - 4, 0);
        }
        let mut tag = [0; 128];
        tag[..3].copy_from_slice(b"TAG");
        tag[33..33 + artist.len()].copy_from_slice(artist.as_bytes());
        bytes.extend(tag);
        std::fs::write(file, bytes).unwrap();
    }
    std::fs::write(folder.join("music/notes.txt"), "no music").unwrap();
}

fn read(folder: &Path, path: &str) -> Vec<u8> {
    std::fs::read(folder.join("music").join(path)).unwrap()
}

/// Whether a program is there; tries to install it as root.
fn has(name: &str) -> bool {
    let is_there = || Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there() {
        let mut apt = Command::new("apt-get");
        let _ = apt.args(["install", "--yes", "--no-install-recommends", name]).stdin(Stdio::null()).output();
    }
    let found = is_there();
    if !found {
        eprintln!("SKIPPED: {name} is not there and cannot be installed; install it with `apt-get install {name}`");
    }
    found
}

#[test]
fn a_stream_is_its_files_one_after_the_other() {
    if !has("curl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    music(folder);
    let server = Server::start(folder);
    assert_eq!(server.curl("/health", &[]), (200, b"ok\n".to_vec()));
    assert_eq!(server.status("/streams/ann.mp3", &[]), 404);
    assert_eq!(server.put("ann", r#"{"with": ["ann"], "without": ["LIVE"]}"#), 201);
    let (one, three) = (read(folder, "jazz/one & two.mp3"), read(folder, "rock/three.mp3"));
    let whole = [&one[..], &three[..]].concat();
    let stream = |args: &[&str]| server.curl("/streams/ann.mp3", args);
    assert!(stream(&[]) == (200, whole.clone()), "the whole");
    // A part that begins in the one file and ends in the other.
    let (first, last) = (one.len() - 5, one.len() + 70_000.min(three.len() - 1) - 1);
    let part = stream(&["--range", &format!("{first}-{last}")]);
    assert!(part == (206, whole[first..=last].to_vec()), "{} {}", part.0, part.1.len());
    assert!(stream(&["--range", "-3"]) == (206, whole[whole.len() - 3..].to_vec()), "the end");
    assert_eq!(stream(&["--range", &format!("{}-", whole.len())]).0, 416);
    let etag = ["--head", "--write-out", "%{stderr}%header{etag}"];
    let head = |path: &str| {
        let output = Command::new("curl").args(["--silent"]).args(etag).arg(format!("{}{path}", server.base)).output();
        String::from_utf8(output.unwrap().stderr).unwrap()
    };
    let known = format!("If-None-Match: {}", head("/streams/ann.mp3"));
    assert!(known.ends_with('"'), "{known}");
    assert_eq!(stream(&["--header", &known]).0, 304);
    let list = String::from_utf8(server.curl("/streams/ann.m3u", &[]).1).unwrap();
    let base = &server.base;
    assert_eq!(list, format!("{base}/files/jazz/one%20%26%20two.mp3\n{base}/files/rock/three.mp3\n"));
    assert!(server.curl("/files/jazz/one%20%26%20two.mp3", &[]) == (200, one), "one track");
    for outside in ["/files/notes.txt", "/files/../token", "/files/%2e%2e/token", "/files//etc/passwd"] {
        assert_eq!(server.status(outside, &["--path-as-is"]), 404, "{outside}");
    }
    // Rules outlive the process.
    drop(server);
    let server = Server::start(folder);
    assert_eq!(server.status("/streams/ann.mp3", &[]), 200);
    let start = String::from_utf8(server.curl("/", &[]).1).unwrap();
    assert!(start.contains("ann.mp3 ann.m3u: 2 tracks"), "{start}");
    let remove = ["--request", "DELETE", "--header", AUTHORIZATION];
    assert_eq!([0; 2].map(|_| server.status("/streams/ann", &remove)), [204, 404]);
}

#[test]
fn more_streams_than_the_limit_are_refused_for_now() {
    if !has("curl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    music(folder.path());
    // More than what the kernel takes of it in advance.
    std::fs::File::create(folder.path().join("music/long.mp3")).unwrap().set_len(64 << 20).unwrap();
    let server = Server::start_with(folder.path(), &["--sending-max", "2"]);
    assert_eq!(server.put("all", "{}"), 201);
    let play = |path: &str| server.send(&format!("GET {path}"));
    let [first, second] = ["/streams/all.mp3", "/files/long.mp3"].map(play);
    assert_eq!([&first.0[0], &second.0[0]], ["HTTP/1.1 200 OK"; 2]);
    let (refused, _) = play("/streams/all.mp3");
    assert_eq!(refused[0], "HTTP/1.1 503 Service Unavailable");
    assert!(refused.iter().any(|line| line == "retry-after: 10"), "{refused:?}");
    // Other requests are served, and an end makes room.
    let start = String::from_utf8(server.curl("/", &[]).1).unwrap();
    assert!(start.contains("all.mp3 all.m3u: 5 tracks"), "{start}");
    assert_eq!(server.status("/streams/all.m3u", &[]), 200);
    drop(first);
    assert_eq!(server.status("/files/rock/three.mp3", &[]), 200);
}

#[test]
fn rules_and_lists_have_conditions() {
    if !has("curl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    music(folder.path());
    let server = Server::start(folder.path());
    let put = |rules: &str, condition: &str| {
        let args = ["--request", "PUT", "--header", AUTHORIZATION, "--header", condition, "--data", rules];
        server.status("/streams/ann", &args)
    };
    let etag = |path: &str| {
        let (head, _) = server.send(&format!("HEAD {path}"));
        head.iter().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_else(|| panic!("{head:?}")).to_owned()
    };
    assert_eq!(
        [put("{}", "If-Match: *"), put("{}", "If-None-Match: *"), put("{}", "If-None-Match: *")],
        [412, 201, 412]
    );
    let first = etag("/streams/ann");
    let if_first = format!("If-Match: {first}");
    assert_eq!([put(r#"{"with": ["ben"]}"#, &if_first), put("{}", &if_first)], [204, 412]);
    let (status, rules) = server.curl("/streams/ann", &["--header", &format!("If-None-Match: {first}")]);
    assert!(status == 200 && rules.starts_with(br#"{"with":["ben"],"#), "{}", String::from_utf8_lossy(&rules));
    for path in ["/streams/ann", "/streams/ann.m3u", "/streams/ann.mp3", "/files/rock/four.mp3"] {
        assert_eq!(server.status(path, &["--header", &format!("If-None-Match: {}", etag(path))]), 304, "{path}");
        assert_eq!(server.status(path, &["--header", "If-Match: \"other\""]), 412, "{path}");
    }
    let whole = format!("content-length: {}", read(folder.path(), "rock/four.mp3").len());
    let (head, _) = server.send("HEAD /streams/ann.mp3\nrange: bytes=1-2");
    assert!(head[0].contains(" 200 ") && head.contains(&whole), "only a GET has ranges: {head:?}");
    let remove = ["--request", "DELETE", "--header", AUTHORIZATION, "--header", &if_first];
    assert_eq!([server.status("/streams/ann", &remove), server.status("/streams/ann", &remove[..4])], [412, 204]);
    // HTTP/2 has no field for the host.
    assert_eq!(server.put("all", "{}"), 201);
    let list = server.curl("/streams/all.m3u", &["--http2-prior-knowledge"]);
    assert_eq!(list, server.curl("/streams/all.m3u", &[]));
    assert!(list.1.starts_with(format!("{}/files/jazz/", server.base).as_bytes()));
}

#[test]
fn mpg123_plays_all_of_a_stream() {
    if !has("curl") || !has("mpg123") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    music(folder.path());
    let server = Server::start(folder.path());
    assert_eq!(server.put("all", r#"{"order": {"shuffled": 7}}"#), 201);
    for args in [&["/streams/all.mp3"][..], &["--list", "/streams/all.m3u"]] {
        let (path, options) = args.split_last().unwrap();
        let mut player = Command::new("mpg123");
        player.args(["--quiet", "--stdout"]).args(options).arg(format!("{}{path}", server.base));
        let output = player.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.stdout.len() / FRAME_PCM_LEN, 150, "{args:?}: {output:?}");
    }
}

#[test]
fn wrong_requests_and_options_are_refused_with_a_sentence() {
    if !has("curl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    music(folder.path());
    let server = Server::start(folder.path());
    assert_eq!(server.status("/streams/a", &["--request", "PUT", "--data", "{}"]), 401);
    assert_eq!(server.status("/streams/a", &["--request", "DELETE", "--header", "Authorization: Bearer x"]), 401);
    assert_eq!([server.put("a", "{"), server.put("a", r#"{"wiht": []}"#), server.put("a%2Fb", "{}")], [422; 3]);
    assert_eq!(server.put("a", &format!(r#"{{"with": ["{}"]}}"#, "a".repeat(20_000))), 413);
    assert_eq!([server.status("/streams/a", &[]), server.status("/streams/a.ogg", &[])], [404, 404]);
    assert_eq!(server.status(&format!("/streams/{}.mp3", "a".repeat(6000)), &[]), 404);
    let put = "PUT /streams/a\ncontent-length: 9";
    assert_eq!(server.send(put).0[0], "HTTP/1.1 401 Unauthorized", "before the body");
    (0..100).for_each(|number| assert_eq!(server.put(&number.to_string(), "{}"), 201));
    assert_eq!([server.put("0", "{}"), server.put("100", "{}")], [204, 507]);
    let failure = |args: &[&str]| {
        let output = program(folder.path(), args).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let taken = server.base.strip_prefix("http://").unwrap();
    assert!(failure(&["--listen", taken]).contains("choose another address"));
    drop(server);
    let read_only = Server::run(without_token(folder.path()));
    assert_eq!(read_only.send(put).0[0], "HTTP/1.1 403 Forbidden");
    assert_eq!(read_only.status("/streams/0.m3u", &[]), 200);
    let missing = Command::new(env!("CARGO_BIN_EXE_jukebox")).args(["--music", "/no/folder"]).output().unwrap();
    assert!(String::from_utf8(missing.stderr).unwrap().contains("cannot read the folder /no/folder"));
}
