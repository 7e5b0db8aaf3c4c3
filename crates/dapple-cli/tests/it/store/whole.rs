//! `dapple store`: commands for a whole store.

use super::server::Server;
use super::{problem, text};

#[test]
fn the_number_of_partitions_changes_while_clients_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--partitions", "2"]);
    assert_eq!(server.ask("MSET a 1 b 2 c 3\nDAPPLE.PARTITIONS"), "+OK :2 ");
    assert_eq!(
        server.ask("DAPPLE.PARTITIONS 5\nMGET a b c\nDAPPLE.PARTITIONS\nDAPPLE.PARTITIONS -1"),
        "+OK *3 $1 1 $1 2 $1 3 :5 -ERR value is out of range "
    );
    server.stop();
}

#[test]
fn the_keys_with_the_most_operations_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--partitions", "2"]);
    assert_eq!(server.ask("DAPPLE.HOTKEYS"), "*0 ");
    let mut commands = "SET hot 1\n".to_owned();
    for number in 0..500 {
        commands += &format!("GET hot\nGET cold:{number}\n");
    }
    server.ask(&commands);
    let told = server.ask("DAPPLE.HOTKEYS\nSELECT 1\nDAPPLE.HOTKEYS");
    let words: Vec<&str> = told.split_whitespace().collect();
    let share: f64 = words[4].parse().unwrap();
    assert!(words[2] == "hot" && (30.0..=70.0).contains(&share) && told.ends_with("+OK *0 "), "{told}");
    server.stop();
}

#[test]
fn a_store_is_split_copied_restored_and_moved_to_another_engine() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    text(folder, &["put", "users", "ann", "42", "--partitions", "2"]);
    text(folder, &["put", "users", "ben", "43"]);
    assert!(text(folder, &["split", "5"]).starts_with("5 partitions"));
    assert!(problem(folder, &["split", "3"], 2).contains("the store has 5 partitions"));
    assert!(text(folder, &["merge", "3"]).starts_with("3 partitions"));
    let url = |name: &str| folder.join(name).display().to_string();
    let copy = format!("redb:{}", url("copy"));
    text(folder, &["checkpoint", &copy]);
    problem(folder, &["checkpoint", &copy], 1);
    std::fs::remove_dir_all(folder.join("store")).unwrap();
    text(folder, &["restore", &copy]);
    assert_eq!(text(folder, &["scan", "users"]), "ann\t42\nben\t43\n");
    let moved = std::process::Command::new(env!("CARGO_BIN_EXE_dapple"))
        .args(["store", "migrate", "--from", &copy, "--to", &format!("fjall:{}", url("moved"))])
        .output()
        .unwrap();
    let [said, problem] = [&moved.stdout, &moved.stderr].map(|text| String::from_utf8_lossy(text));
    if cfg!(feature = "fjall") {
        assert!(moved.status.success() && said.starts_with("users: 2 keys, checksum "), "{moved:?}");
    } else {
        assert!(moved.status.code() == Some(2) && problem.contains("build it with `--features fjall`"), "{moved:?}");
    }
}
