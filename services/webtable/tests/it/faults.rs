//! Front ends and tables that are killed, frozen and ended under load.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::programs::{AUTHORIZATION, Program, has_curl, token_file};

/// The clients, and the requests of each run of curl.
const CLIENTS: usize = 4;
const REQUESTS: usize = 50;

/// Two front ends at one port of two addresses, as one name has them.
fn pair(folder: &Path, table: &Program) -> [Program; 2] {
    let token = token_file(folder);
    let args = |listen: &str| {
        ["front", "--listen", listen, "--tables", &table.address, "--token-file", token.to_str().unwrap()]
            .map(str::to_owned)
    };
    let start = |listen: &str| Program::try_start(&args(listen).each_ref().map(String::as_str));
    loop {
        let first = start("127.0.0.1:0").expect("a free port");
        let port = first.address.rsplit_once(':').unwrap().1;
        if let Some(second) = start(&format!("127.0.0.2:{port}")) {
            return [first, second];
        }
    }
}

/// A client that asks for the file again and again, first at one of the front ends, and at the other one if that fails.
struct Client {
    number: usize,
    /// With the port of the front ends.
    host: String,
    folder: PathBuf,
}

impl Client {
    /// Makes all requests of a run, and sends the address of each reply.
    fn run(&self, text: &str, replies: &Sender<String>) {
        let Client { number, host, folder } = self;
        let addresses = ["127.0.0.1,127.0.0.2", "127.0.0.2,127.0.0.1"][number % 2];
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--retry", "10", "--retry-all-errors", "--retry-delay", "1", "--no-buffer"]);
        curl.args(["--resolve", &format!("{host}:{addresses}"), "--write-out", "%{stderr}%{http_code} %{remote_ip}\n"]);
        curl.arg("--output").arg(folder.join(format!("{number}-#1")));
        let mut curl = curl.arg(format!("http://{host}/file?[1-{REQUESTS}]")).stderr(Stdio::piped()).spawn().unwrap();
        for line in BufReader::new(curl.stderr.take().unwrap()).lines().map(Result::unwrap) {
            let from = line.strip_prefix("200 ").unwrap_or_else(|| panic!("client {number}: {line}"));
            replies.send(from.to_owned()).unwrap();
        }
        assert!(curl.wait().unwrap().success());
        for request in 1..=REQUESTS {
            let got = std::fs::read_to_string(folder.join(format!("{number}-{request}"))).unwrap();
            assert!(got == text, "client {number}, request {request}: {} of {} bytes", got.len(), text.len());
        }
    }

    /// Makes runs until one has begun after the kill.
    fn run_past(&self, kill: &AtomicBool, text: &str, replies: &Sender<String>) {
        while {
            let is_last = kill.load(SeqCst);
            self.run(text, replies);
            !is_last
        } {}
    }
}

#[test]
fn a_front_end_killed_under_load_costs_no_request() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let table = Program::table(&folder.path().join("store"), "127.0.0.1:0");
    let mut fronts = pair(folder.path(), &table);
    let file = folder.path().join("file");
    let text: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
    std::fs::write(&file, &text).unwrap();
    assert_eq!(fronts[0].put("/file", &format!("@{}", file.display())), 201);
    let host = format!("web.test:{}", fronts[0].address.rsplit_once(':').unwrap().1);
    let killed = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<Receiver<String>> = (0..CLIENTS)
            .map(|number| {
                let client = Client { number, host: host.clone(), folder: folder.path().to_owned() };
                let (replies, receiver) = channel();
                let (killed, text) = (&killed, &text);
                scope.spawn(move || client.run_past(killed, text, &replies));
                receiver
            })
            .collect();
        // All are at work when it dies.
        let before: Vec<Vec<String>> =
            clients.iter().map(|client| client.recv().into_iter().chain(client.try_iter()).collect()).collect();
        fronts[0].kill();
        killed.store(true, SeqCst);
        for (number, (before, client)) in before.into_iter().zip(clients).enumerate() {
            let after: Vec<String> = client.iter().collect();
            // The last run was left, and the rest of the one before.
            assert!(after.len() >= REQUESTS && (before.len() + after.len()).is_multiple_of(REQUESTS), "{number}");
            assert!(before[0] == ["127.0.0.1", "127.0.0.2"][number % 2], "{number}: {before:?}");
            assert!(after[after.len() - REQUESTS..].iter().all(|from| from == "127.0.0.2"), "{number}: {after:?}");
        }
    });
}

#[test]
fn an_acknowledged_upload_outlives_a_killed_table() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut table = Program::table(&store, "127.0.0.1:0");
    let front = Program::front(folder.path(), &[&table]);
    assert_eq!(front.put("/a", "one"), 201);
    let etag = front.curl("/a", &[]).field("etag").to_owned();
    table.kill();
    // Nothing has changed, and the client may ask again.
    let refused = front.curl_once("/a", &["--request", "PUT", "--header", AUTHORIZATION, "--data", "two"]);
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.field("retry-after").parse::<u32>().is_ok_and(|seconds| seconds >= 1), "{refused:?}");
    let mut table = Program::table(&store, &table.address);
    let read = front.curl("/a", &[]);
    assert_eq!((read.status, read.body.as_str(), read.field("etag")), (200, "one", etag.as_str()));
    // A table that ends in order loses no request either.
    table.signal("TERM");
    assert_eq!(front.curl_once("/a", &[]).status, 503);
    let _table = Program::table(&store, &table.address);
    assert_eq!(front.curl("/a", &[]).status, 200);
}

#[test]
fn a_frozen_table_leaves_a_change_unknown_and_a_read_for_later() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut table = Program::table(&folder.path().join("store"), "127.0.0.1:0");
    let token = token_file(folder.path());
    let options = ["--listen", "127.0.0.1:0", "--limit-ms", "300", "--token-file", token.to_str().unwrap()];
    // A front end of its own for each request, so that none knows from another one that the table does not answer.
    let fronts = [0; 3].map(|_| Program::start(&[&["front", "--tables", &table.address], &options[..]].concat()));
    for (number, front) in fronts.iter().enumerate() {
        assert_eq!(front.put(&format!("/{number}"), "one"), 201);
    }
    let [one, two, three] = &fronts;
    table.signal("STOP");
    let put = ["--request", "PUT", "--header", AUTHORIZATION, "--data", "two"];
    let unknown = one.curl_once("/run/counter/visits", &put);
    assert!(unknown.status == 504 && unknown.body.contains("may have been made"), "{unknown:?}");
    // A PUT of a file reads first, and has sent no change.
    for later in [two.curl_once("/1", &[]), three.curl_once("/2", &put)] {
        let after = later.field("retry-after").parse::<u32>();
        assert!(later.status == 503 && after.is_ok_and(|seconds| seconds >= 1), "{later:?}");
        assert!(later.body.starts_with("not now: ") && !later.body.contains("may have been made"), "{later:?}");
    }
    table.signal("CONT");
    assert_eq!([two.curl("/1", &[]).body, three.curl("/2", &[]).body], ["one"; 2]);
    let counter = one.curl("/run/counter/visits", &[]);
    assert!([200, 404].contains(&counter.status), "{counter:?}");
}
