//! Front ends and tables that are killed, frozen and ended under load.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::programs::{AUTHORIZATION, Program, has_curl, token_file};

/// The clients, and the requests of each.
const CLIENTS: usize = 4;
const REQUESTS: usize = 200;

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
fn client(fronts: &[Program; 2], number: usize, folder: &Path) -> Child {
    let port = fronts[0].address.rsplit_once(':').unwrap().1;
    let addresses = ["127.0.0.1,127.0.0.2", "127.0.0.2,127.0.0.1"][number % 2];
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", "--retry", "10", "--retry-all-errors", "--retry-delay", "1", "--no-buffer"]);
    curl.args(["--resolve", &format!("web.test:{port}:{addresses}"), "--write-out", "%{stderr}%{http_code}\n"]);
    curl.arg("--output").arg(folder.join(format!("{number}-#1")));
    curl.arg(format!("http://web.test:{port}/file?[1-{REQUESTS}]"));
    curl.stderr(Stdio::piped()).spawn().unwrap()
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
    let mut clients: Vec<Child> = (0..CLIENTS).map(|number| client(&fronts, number, folder.path())).collect();
    let mut lines: Vec<_> =
        clients.iter_mut().map(|client| BufReader::new(client.stderr.take().unwrap()).lines()).collect();
    // All are at work when it dies.
    for lines in &mut lines {
        assert_eq!(lines.next().unwrap().unwrap(), "200");
    }
    fronts[0].kill();
    for (number, lines) in lines.into_iter().enumerate() {
        let statuses: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(
            statuses.len() == REQUESTS - 1 && statuses.iter().all(|status| status == "200"),
            "{number}: {statuses:?}"
        );
        for request in 1..=REQUESTS {
            let got = std::fs::read_to_string(folder.path().join(format!("{number}-{request}"))).unwrap();
            assert!(got == text, "client {number}, request {request}: {} of {} bytes", got.len(), text.len());
        }
    }
    clients.into_iter().for_each(|mut client| assert!(client.wait().unwrap().success()));
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
