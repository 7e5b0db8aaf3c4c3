//! All kinds of ends, the client, and invalid command lines.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::{Answer, Client, PATIENCE, Server, VARIANTS, body, command, command_at, digest, log};

#[test]
fn after_kill_every_acknowledged_task_is_in_the_durable_log() {
    for variant in VARIANTS {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::start(variant, folder.path(), &["--sync"]);
        let mut client = Client::connect(&server);
        (0..400).for_each(|id| client.send(id, &body(id)));
        let mut acknowledged = Vec::new();
        while let Some(answer) = client.answer() {
            if let Answer::Signed { id, sequence, first, .. } = answer {
                acknowledged.push((sequence, id, first));
            }
            if acknowledged.len() == 20 {
                server.child.kill().unwrap();
            }
        }
        server.wait();
        assert!(acknowledged.len() >= 20);
        drop(Server::start(variant, folder.path(), &[]));
        let log = log(folder.path());
        for (sequence, id, first) in acknowledged {
            assert_eq!(log[sequence as usize - 1], (id, first), "{variant}");
        }
    }
}

#[test]
fn at_the_signal_to_stop_accepted_tasks_are_answered_and_the_rest_is_refused() {
    for variant in VARIANTS {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::start(variant, folder.path(), &["--sync"]);
        let mut client = Client::connect(&server);
        (0..200).for_each(|id| client.send(id, &body(id)));
        let first = client.answer();
        assert!(matches!(first, Some(Answer::Signed { .. })), "{variant}: {first:?}");
        server.terminate();
        let mut signed = 1;
        while let Some(answer) = client.answer() {
            match answer {
                Answer::Signed { id, first, .. } => {
                    assert_eq!(first, digest("one", &body(id)));
                    signed += 1;
                }
                Answer::Refused { retry_after_ms, .. } => assert!(retry_after_ms > 0),
                other => panic!("{variant}: {other:?}"),
            }
        }
        drop(client);
        assert!(server.wait().success(), "{variant}");
        assert_eq!(log(folder.path()).len(), signed, "{variant}");
    }
}

fn sign_client(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dapple")).arg("sign-client").args(options).output().unwrap()
}

/// Runs the client, for longer if the machine was too busy for a result.
fn sign_client_until(options: &[&str], is_enough: impl Fn(&Output) -> bool) -> Output {
    let mut outputs = ["1.2", "6", "40"].iter().map(|secs| sign_client(&[options, &["--secs", secs]].concat()));
    outputs.find(|output| is_enough(output)).expect("there is a result")
}

#[test]
fn the_client_counts_what_the_server_has_logged() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start("replicated", folder.path(), &[]);
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    let address = &*server.address;
    let options = ["--addr", address, "--in-flight", "16", "--connections", "3", "--json"];
    let json = |output: &Output| serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
    let logged = std::cell::Cell::new(0);
    let options = [&options[..], &["--first-secret", first, "--second-secret", second]].concat();
    let output = sign_client_until(&options, |output| {
        let (result, before) = (json(output), logged.replace(log(folder.path()).len()));
        assert_eq!(result["signed"], logged.get() - before);
        assert_eq!((&result["errors"], &result["wrong"]), (&0.into(), &0.into()));
        let has_progress = String::from_utf8_lossy(&output.stderr).contains("signed/s");
        has_progress && result["throughput_per_s"].as_f64().unwrap() > 0.0
    });
    assert!(output.status.success(), "{output:?}");
    let result = json(&output);
    let latency = |name: &str| result["latency_us"][name].as_f64().unwrap();
    assert!(latency("p50") > 0.0 && latency("p50") <= latency("p99") && latency("p99") <= latency("max"));

    // With other secrets all digests are wrong, and the client says so.
    let options = ["--addr", address, "--first-secret", second, "--json", "--quiet"];
    let output = sign_client_until(&options, |output| json(output)["wrong"].as_u64().unwrap() > 0);
    assert_eq!((output.status.code(), &json(&output)["signed"]), (Some(1), &0.into()));
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let options = ["--addr", address, "--first-secret", second, "--quiet"];
    let output = sign_client_until(&options, |output| !text(output).contains(" 0 wrong"));
    assert!(text(&output).contains("the server may have other secrets"), "{output:?}");
}

#[test]
fn an_interrupted_client_reports_its_measurements_and_what_is_uncertain() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start("pipelined", folder.path(), &[]);
    let mut client = Command::new(env!("CARGO_BIN_EXE_dapple"));
    let options = ["--in-flight", "8", "--connections", "2", "--secs", "3600", "--json", "--quiet"];
    client.args(["sign-client", "--addr", &server.address]).args(options);
    let client = client.stdout(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while log_len(folder.path()) < 50 {
        assert!(begin.elapsed() < PATIENCE, "no task comes");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &client.id().to_string()]).status().unwrap().success());
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    drop(server);
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |name: &str| result[name].as_u64().unwrap() as usize;
    let (signed, lost, logged) = (count("signed"), count("lost"), log_len(folder.path()));
    assert!(signed > 0 && lost <= 8 && (signed..=signed + lost).contains(&logged), "{logged} in {result}");
    assert!(
        result["throughput_per_s"].as_f64().unwrap() > 0.0 && result["secs"].as_f64().unwrap() < 3600.0,
        "{result}"
    );
}

/// The client's output for a server that sends this welcome, and this answer to the first task.
fn printed_of(welcome: &'static [u8], answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let _ = stream.write_all(welcome);
                let mut heads = [0; 11 + 5_013];
                if stream.read_exact(&mut heads).is_ok() {
                    let _ = stream.write_all(answer);
                }
                let _ = stream.read(&mut heads);
            });
        }
    });
    let has_met = |output: &Output| output.stdout.windows(10).any(|words| words == b"last error");
    let output = sign_client_until(&["--addr", &address, "--quiet"], has_met);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_client_takes_no_other_version_and_no_control_characters_from_a_server() {
    let printed = printed_of(b"\0\0\0\x0e\x02DSGN\x09\0\x01\0\0\0\0\0\x09", b"");
    assert!(printed.contains("the server speaks version 9; this client speaks only 1"), "{printed}");
    let error = b"\0\0\0\x0c\x07\x01full\x1b[31m\n";
    let printed = printed_of(b"\0\0\0\x0e\x02DSGN\x01\0\x01\0\0\0\0\0\x09", error);
    assert!(printed.contains("last error: the server says: full\u{fffd}[31m\u{fffd}"), "{printed:?}");
}

#[test]
fn when_a_server_dies_its_tasks_go_to_the_other_and_back_and_losses_are_counted() {
    let (folder, other_folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut server = Server::start("pipelined", folder.path(), &["--sync"]);
    let other = Server::start("pipelined", other_folder.path(), &["--sync"]);
    let address = server.address.clone();
    // Runs until the restarted server has had tasks, and is then interrupted.
    let options = ["--in-flight", "8", "--connections", "4", "--secs", "600", "--json", "--quiet"];
    let mut client = Command::new(env!("CARGO_BIN_EXE_dapple"));
    client.args(["sign-client", "--addr", &address, "--addr", &other.address]).args(options);
    let client = client.stdout(Stdio::piped()).spawn().unwrap();
    let has_more_than = |records: usize| {
        let begin = Instant::now();
        while std::fs::metadata(folder.path().join("log")).map_or(0, |log| log.len()) <= records as u64 * 128 {
            assert!(begin.elapsed() < PATIENCE, "no task comes to the first server");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    has_more_than(10);
    server.child.kill().unwrap();
    server.wait();
    let mut again = command_at(&address, "pipelined", folder.path());
    let mut again = again.stdout(Stdio::null()).spawn().unwrap();
    let before = log_len(folder.path());
    has_more_than(before + 10);
    let end = |process: u32| Command::new("kill").args(["-TERM", &process.to_string()]).status().unwrap().success();
    assert!(end(client.id()));
    let output = client.wait_with_output().unwrap();
    assert!(end(again.id()));
    assert!(again.wait().unwrap().success());
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |name: &str| result[name].as_u64().unwrap() as usize;
    let logged = log(folder.path()).len() + log(other_folder.path()).len();
    assert!(count("connection_errors") > 0, "{result}");
    assert!(count("signed") <= logged && logged <= count("signed") + count("lost"), "{logged} in {result}");
}

#[test]
fn a_missing_server_is_reported_once_and_the_others_get_its_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start("pipelined", folder.path(), &[]);
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let options = ["--in-flight", "4", "--connections", "4", "--secs", "1", "--json", "--quiet"];
    let output = sign_client(&[&["--addr", &dead, "--addr", &server.address][..], &options].concat());
    assert!(output.status.success(), "{output:?}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result["signed"].as_u64().unwrap() > 0, "{result}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches(&format!("no server answers at {dead}")).count(), 1, "{said}");
    // If no server answers, all are named.
    let output = sign_client(&["--addr", &dead, "--addr", "127.0.0.1:1"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains(&dead) && said.contains("127.0.0.1:1"), "{said}");
}

#[test]
fn all_addresses_of_a_name_are_tried() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::spawn(command_at(address, "pipelined", folder.path()));
        let port = server.address.rsplit(':').next().unwrap();
        let output = sign_client(&["--addr", &format!("localhost:{port}"), "--secs", "0.2", "--quiet"]);
        assert!(output.status.success(), "{address}: {output:?}");
    }
}

/// The number of whole records, while a server may be writing.
fn log_len(folder: &Path) -> usize {
    std::fs::read(folder.join("log")).unwrap().len() / 128
}

#[test]
fn impossible_options_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    std::fs::write(folder.path().join("letter"), "Dear Sir or Madam").unwrap();
    std::fs::write(folder.path().join("empty"), "").unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (missing, letter, empty) = (path("no/log"), path("letter"), path("empty"));
    let cases: [(&[&str], i32, &str); 21] = [
        (&["--log", &missing], 1, "there is no folder for the log"),
        (&["--log", &letter], 1, "is not a log of `dapple sign`, and stays as it is"),
        (&["--log", "/dev/null"], 1, "not a regular file"),
        (&["--first-secret", &missing], 1, "cannot read the secret"),
        (&["--first-secret", &empty], 1, "is empty"),
        (&["--addr", &address], 1, "is taken by "),
        (&["--addr", &address], 1, "choose another port with `--addr HOST:PORT`"),
        (&["--graph", &missing], 1, "the graph of stages cannot be written"),
        (&["--replicas", "3", "--replicas-max", "2"], 2, "--replicas 3 is more than --replicas-max 2"),
        (&["--replicas-max", "1"], 2, "--replicas-max 1 is less than --replicas, which is 2 by default"),
        (&["--queue", "0"], 2, "from 1 to"),
        (&["--threads", "9"], 2, "--variant replicated does not use --threads, which is for threaded;"),
        (&["--variant", "threaded", "--queue", "9"], 2, "which is for wrapped, pipelined, replicated;"),
        (&["--variant", "pipelined", "--width", "9"], 2, "which is for wrapped, replicated;"),
        (&["--variant", "wrapped", "--batch", "9"], 2, "which is for pipelined, replicated;"),
        (&["--variant", "wrapped", "--replicas", "9"], 2, "--variant wrapped does not use --replicas,"),
        (&["--variant", "wrapped", "--replicas-max", "9"], 2, "--variant wrapped does not use --replicas-max,"),
        (&["--tasks-mib", "1", "--task-bytes-max", "1048576"], 2, "give 2 or more"),
        (&["--hosts", "a:1"], 2, "give --sign-log to `dapple stage-host --stage sign`"),
        (&["--hosts", "ftp://a:1"], 2, "is none of HOST:PORT"),
        (&["--variant", "wrapped", "--hosts", "a:1"], 2, "--hosts is only for --variant replicated"),
    ];
    for (options, code, words) in cases {
        let mut sign = Command::new(env!("CARGO_BIN_EXE_dapple"));
        sign.arg("sign");
        let all = ["--variant", "replicated", "--addr", "127.0.0.1:0", "--log", &path("log")].map(str::to_owned);
        for pair in all.chunks(2).filter(|pair| !options.contains(&&*pair[0])) {
            sign.args(pair);
        }
        let output = sign.args(options).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && text.contains(words), "{options:?}: {text}");
    }
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "Dear Sir or Madam");
    for (option, words) in [
        ("--replicas", "--replicas does not go with --hosts: there are as many replicas as hosts"),
        ("--replicas-max", "--replicas-max does not go with --hosts"),
        ("--batch", "--batch does not go with --hosts: each host has its own log"),
        ("--log-max-mb", "give --sign-log-max-mb to `dapple stage-host --stage sign`"),
    ] {
        let mut sign = Command::new(env!("CARGO_BIN_EXE_dapple"));
        sign.args(["sign", "--variant", "replicated", "--hosts", "127.0.0.1:1", option, "4"]);
        let output = sign.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && text.contains(words), "{option}: {text}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_dapple")).args(["sign", "--variant", "wrapped"]).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("--log FILE is missing"));
    let output = sign_client(&["--addr", "127.0.0.1:1"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("no server answers at 127.0.0.1:1"));
}

#[test]
fn one_log_has_one_writer_and_the_threaded_variant_has_no_drawing() {
    let folder = tempfile::tempdir().unwrap();
    let _server = Server::start("wrapped", folder.path(), &[]);
    let output = command("threaded", folder.path()).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("another process writes to the log"));
    let output = command("threaded", folder.path()).args(["--graph", "x.svg"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
