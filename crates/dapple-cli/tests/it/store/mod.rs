//! `dapple store`.

mod host;
mod pubsub;
mod real_etcd;
mod redis;
mod redis_rs;
mod server;
mod whole;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs one command on the store in `folder`, with `input` on its standard input.
fn store(folder: &Path, words: &[&str], input: &str) -> Output {
    let (command, rest) = words.split_first().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_dapple"))
        .args(["store", command, &format!("redb:{}", folder.join("store").display())])
        .args(rest)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that does not read its input may have ended.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn text(folder: &Path, words: &[&str]) -> String {
    let output = store(folder, words, "");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn problem(folder: &Path, words: &[&str], code: i32) -> String {
    let output = store(folder, words, "");
    assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn values_are_put_read_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    text(folder, &["create", "users"]);
    text(folder, &["put", "users", "ann", "42"]);
    assert_eq!(text(folder, &["get", "users", "ann"]), "42\n");
    let put: serde_json::Value = serde_json::from_str(&text(folder, &["put", "users", "ann", "43", "--json"])).unwrap();
    assert_eq!(put["previous"], "42");
    assert!(problem(folder, &["put", "users", "ann", "44", "--if-absent"], 1).contains("has version"));
    let version = put["version"].to_string();
    text(folder, &["put", "users", "ann", "44", "--if-version", &version]);
    problem(folder, &["put", "users", "ann", "45", "--if-version", &version], 1);
    assert_eq!(text(folder, &["count", "users"]), "1\n");
    assert_eq!(text(folder, &["remove", "users", "ann"]), "44\n");
    assert!(problem(folder, &["get", "users", "ann"], 1).contains("no value for `ann`"));
    text(folder, &["verify"]);
    text(folder, &["destroy", "users"]);
    assert_eq!(text(folder, &["list"]), "");
}

#[test]
fn a_dump_can_be_loaded_and_ranges_are_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Later lines of a key win, also within one batch.
    let lines: String = (0..1500).map(|number| format!("k{:04}\t{number}\\x00\\t\n", number % 1200)).collect();
    let loaded = store(folder, &["load", "big"], &lines);
    assert_eq!(String::from_utf8_lossy(&loaded.stdout), "1500 lines loaded\n", "{loaded:?}");
    let dump = text(folder, &["dump", "big"]);
    assert_eq!(dump.lines().count(), 1200);
    assert_eq!(dump.lines().next(), Some("k0000\t1200\\x00\\t"));
    assert!(dump.lines().is_sorted());
    let copied = store(folder, &["load", "copy"], &dump);
    assert!(copied.status.success());
    assert_eq!(text(folder, &["dump", "copy"]), dump);
    assert_eq!(text(folder, &["scan", "big", "--prefix", "k119"]).lines().count(), 10);
    let range = text(folder, &["scan", "big", "--from", "k0500", "--to", "k0600", "--limit", "3"]);
    assert_eq!(range.lines().map(|line| &line[..5]).collect::<Vec<_>>(), ["k0500", "k0501", "k0502"]);
    let wrong = store(folder, &["load", "big"], "a\tb\nno tab\n");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("line 2"), "{wrong:?}");
}

#[test]
fn a_bench_says_its_figures_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    text(folder, &["put", "users", "ann", "42"]);
    let said = text(folder, &["bench", "--callers", "1,3", "--keys", "50", "--secs", "0.05", "--json"]);
    let all: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let works: Vec<_> =
        all.iter().map(|one| (one["work"].as_str().unwrap(), one["callers"].as_u64().unwrap())).collect();
    assert_eq!(works, [("put", 1), ("get", 1), ("put", 3), ("get", 3)]);
    assert!(all.iter().all(|one| one["operations"].as_u64() > Some(0) && one["per_second"].as_f64() > Some(0.0)));
    assert!(
        text(folder, &["bench", "--callers", "1", "--keys", "5", "--secs", "0.05"]).contains("all values are right")
    );
    assert_eq!(text(folder, &["list"]).lines().count(), 1);
    text(folder, &["create", "dapple-bench"]);
    assert!(problem(folder, &["bench"], 1).contains("exists already"));
}

#[test]
fn reading_does_not_create_a_store() {
    let folder = tempfile::tempdir().unwrap();
    assert!(problem(folder.path(), &["get", "users", "ann"], 2).contains("there is no store"));
    assert!(!folder.path().join("store").exists());
    text(folder.path(), &["create", "users"]);
    assert!(problem(folder.path(), &["create", "users"], 1).contains("exists already"));
    assert!(problem(folder.path(), &["count", "others"], 1).contains("there is no table `others`"));
    let output = Command::new(env!("CARGO_BIN_EXE_dapple")).args(["store", "list", "nosuch:x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no engine `nosuch`"));
}

#[test]
fn wrong_input_is_named_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(problem(folder, &["load", "users", "nosuch"], 1).contains("cannot read nosuch"));
    assert!(!folder.join("store").exists());
    text(folder, &["put", "users", "ann", "42", "--partitions", "1"]);
    let own = format!("redb:{}", folder.join("store").display());
    assert!(problem(folder, &["checkpoint", &own], 2).contains("is the store itself: a copy needs another place"));
    assert!(problem(folder, &["restore", &own], 2).contains("is the store itself"));
    let nowhere = format!("redb:{}", folder.join("nowhere").display());
    assert!(problem(folder, &["restore", &nowhere], 2).contains("check the place"));
    // The directory is a file.
    std::fs::write(folder.join("file"), "x").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_dapple"))
        .args(["store", "put", &format!("redb:{}", folder.join("file").display()), "users", "a", "b"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("a store is a directory"), "{output:?}");
    assert_eq!(std::fs::read(folder.join("file")).unwrap(), b"x");
    assert_eq!(text(folder, &["get", "users", "ann"]), "42\n");
}

#[test]
fn a_load_that_cannot_read_on_says_how_much_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    // A socket that closes with something unread is reset, behind what it has sent.
    theirs.write_all(b"unread").unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_dapple"))
        .args(["store", "load", &format!("redb:{}", folder.path().join("store").display()), "big", "-"])
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A chunk has 65,536 lines.
    let lines: String = (0..65_636).map(|number| format!("k{number:06}\tv\n")).collect();
    ours.write_all(lines.as_bytes()).unwrap();
    drop(ours);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot read -: ") && said.contains("65536 lines are loaded"), "{said}");
    assert_eq!(text(folder.path(), &["count", "big"]), "65536\n");
}

#[test]
fn a_store_without_one_of_its_files_is_not_served() {
    for file in ["synced-0.redb", "catalog.redb"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        text(folder, &["put", "users", "ann", "42", "--partitions", "1"]);
        let (path, kept) = (folder.join("store").join(file), folder.join("kept"));
        std::fs::rename(&path, &kept).unwrap();
        for words in [&["get", "users", "ann"][..], &["put", "users", "ann", "43"], &["verify"], &["list"]] {
            let said = problem(folder, words, 1);
            assert!(said.contains(file) && said.contains("put the file back"), "{words:?}: {said}");
        }
        std::fs::rename(&kept, &path).unwrap();
        assert_eq!(text(folder, &["get", "users", "ann"]), "42\n");
    }
}

#[test]
fn the_bytes_of_an_engine_with_directories_count() {
    if !cfg!(feature = "fjall") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let url = format!("fjall:{}", folder.path().join("store").display());
    let run = |words: &[&str]| {
        let (command, rest) = words.split_first().unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_dapple")).args(["store", command, &url]).args(rest).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["put", "users", "ann", &"x".repeat(100_000)]);
    let stats: serde_json::Value = serde_json::from_str(&run(&["stats", "--json"])).unwrap();
    assert!(stats["bytes"].as_u64() > Some(100_000), "{stats}");
}
