//! `dapple store` on a real etcd, if there is one. `cargo xtask etcd` fetches it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use crate::stage_host::etcd::Etcd;

fn store(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dapple")).arg("store").args(words).output().unwrap()
}

fn text(words: &[&str]) -> String {
    let output = store(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn commands_follow_each_other_without_waiting_for_a_lease() {
    let Some(etcd) = Etcd::start_at("127.0.0.1") else { return };
    let url = &format!("etcd://{}/shop", etcd.client);
    let none = store(&["get", url, "users", "ann"]);
    assert!(
        none.status.code() == Some(2) && String::from_utf8_lossy(&none.stderr).contains("there is no store"),
        "{none:?}"
    );
    text(&["put", url, "users", "ann", "42", "--partitions", "2"]);
    for number in 0..5 {
        text(&["put", url, "users", "ben", &number.to_string()]);
    }
    assert_eq!(text(&["scan", url, "users"]), "ann\t42\nben\t4\n");
    assert!(text(&["split", url, "3"]).starts_with("3 partitions"));
    assert!(text(&["stats", url]).contains("users: 2 keys"));
    assert_eq!(owner(&etcd.client), None);
    let folder = tempfile::tempdir().unwrap();
    let files = &format!("redb:{}", folder.path().join("copy").display());
    text(&["migrate", "--from", url, "--to", files]);
    assert_eq!(text(&["get", files, "users", "ben"]), "4\n");
    let back = &format!("etcd://{}/back", etcd.client);
    text(&["migrate", "--from", files, "--to", back]);
    assert_eq!(text(&["get", back, "users", "ann"]), "42\n");
    let itself = store(&["migrate", "--from", back, "--to", back]);
    assert!(String::from_utf8_lossy(&itself.stderr).contains("is the store itself"), "{itself:?}");
}

/// The key of the process that has the store, or had it until its lease is over.
fn owner(address: &str) -> Option<dapple::etcd::Record> {
    let client = dapple::etcd::Etcd::new([address]).unwrap();
    let runtime = dapple::builder().build().unwrap();
    runtime.block_on(async move { client.get("/shop//owner").await.unwrap() })
}

#[test]
fn a_server_ends_when_it_may_have_lost_the_store() {
    let Some(mut etcd) = Etcd::start_at("127.0.0.1") else { return };
    let mut child = Command::new(env!("CARGO_BIN_EXE_dapple"))
        .args(["store", "serve", &format!("etcd://{}/shop", etcd.client), "--port", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on "), "{line}");
    etcd.kill();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(1) && said.contains("does not have it any more"), "{ended:?}");
}
