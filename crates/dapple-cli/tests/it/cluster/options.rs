//! Options that make no sense, and the page that documents them.

use std::process::Command;

use super::dapple;

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("wrong.toml"), "[[service]]\nname = \"echo\"\ncommand = [\"x\"]\nmaximum = 3\n").unwrap();
    std::fs::write(path("file"), "").unwrap();
    let (wrong, below) = (path("wrong.toml"), path("file/state"));
    let join = ["--join", "etcd://127.0.0.1:1/x"];
    let cases: [(&[&str], i32, &str); 11] = [
        (&["host", join[0], join[1], "--address", "0.0.0.0"], 2, "clients cannot connect to 0.0.0.0"),
        (&["host"], 2, "give --join etcd://HOST:PORT"),
        (&["host", "--join", "10.0.0.9:2379"], 2, "write etcd://HOST:PORT[,HOST:PORT…]/PREFIX"),
        (&["host", join[0], join[1], "--name", "a/b"], 2, "letters, digits"),
        (&["host", join[0], join[1], "--cores", "none"], 2, "write a number from 1 to 10000"),
        (&["host", join[0], join[1], "--state", &below], 1, "choose another one with --state"),
        (
            &["host", join[0], join[1], "--page-token", "x", "--state", &path("s")],
            2,
            "has no use without `--page HOST:PORT`",
        ),
        (&["host", join[0], join[1], "--page", "0.0.0.0:0", "--state", &path("s")], 2, "give --page-token"),
        (&["cluster"], 2, "give --join etcd://HOST:PORT"),
        (&["cluster", join[0], join[1], "apply", &wrong], 2, "unknown field `maximum`"),
        (&["cluster", join[0], join[1], "scale", "echo", "3", "1"], 2, "the least number, 3, is above the largest, 1"),
    ];
    for (words, code, said) in cases {
        let output = Command::new(dapple()).args(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && error.contains(said), "{words:?}: {:?} {error}", output.status);
    }
}

#[test]
fn every_option_and_command_is_documented() {
    let documented = include_str!("../../../../../docs/cluster.md");
    for command in ["host", "cluster"] {
        let output = Command::new(dapple()).args([command, "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let options: Vec<&str> =
            help.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split(' ').next()).collect();
        assert!(options.len() > 2, "{options:?}");
        for option in options.into_iter().filter(|option| *option != "help") {
            assert!(documented.contains(&format!("`--{option}")), "--{option} is not in docs/cluster.md");
        }
    }
    for action in ["status", "apply", "scale", "roll", "remove", "drain", "events"] {
        assert!(documented.contains(&format!("`{action}")), "{action} is not in docs/cluster.md");
    }
}
