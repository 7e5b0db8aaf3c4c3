//! Options from the command line, the environment and a file; and `--check`, which only reads them.

use std::process::Command;

use crate::support::{Server, Site, dapple};

/// Exit code, stdout and stderr of a command that ends by itself.
pub(crate) fn outcome(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The outcome of `dapple serve --check` for a file.
fn check(site: &Site, file: &str) -> (Option<i32>, String, String) {
    site.write("serve.toml", file);
    outcome(dapple().args(["serve", "--check", "--config"]).arg(site.path.join("serve.toml")).arg(&site.path))
}

#[test]
fn a_file_alone_is_enough() {
    let site = Site::with_index();
    let root = site.path.join("root");
    site.write("root/index.html", "from the file");
    // Relative to the file, whatever the working directory.
    site.write("serve.toml", "dir = 'root'\nport = 0\nworkers = 3\nno_status = true\n");
    let mut command = dapple();
    command.arg("serve").arg("--config").arg(site.path.join("serve.toml")).current_dir("/");
    let server = Server::spawn(command);
    assert!(server.line.contains("with 3 workers") && server.line.contains(root.to_str().unwrap()), "{}", server.line);
    assert_eq!(server.get("/").text(), "from the file");
    assert_eq!(server.get("/-/status").status, 404);
}

#[test]
fn the_stronger_source_wins() {
    let site = Site::with_index();
    site.write("serve.toml", "workers = 3\nport = 0\n");
    let start = |variable: Option<&str>, flag: Option<&str>| {
        let mut command = dapple();
        command.arg("serve").arg(&site.path).env("DAPPLE_SERVE_CONFIG", site.path.join("serve.toml"));
        command.envs(variable.map(|workers| ("DAPPLE_SERVE_WORKERS", workers)));
        command.args(flag.into_iter().flat_map(|workers| ["--workers", workers]));
        Server::spawn(command).line.clone()
    };
    for (variable, flag, workers) in [(None, None, 3), (Some("2"), None, 2), (Some("2"), Some("4"), 4)] {
        let line = start(variable, flag);
        assert!(line.contains(&format!("with {workers} workers")), "{line}");
    }
}

#[test]
fn a_check_shows_the_settings_in_use() {
    let site = Site::with_index();
    let (code, shown, message) = check(&site, "cache_mb = 64\n");
    assert_eq!((code, message.as_str()), (Some(0), ""));
    for part in [
        "# Limits",
        "cache_mb = 64",
        "# line 1 of the file",
        "drain_s = 9",
        "# connections_max is not set",
        "# workers is not set",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    // The output is itself a configuration file.
    let (code, again, _) = check(&site, &shown);
    assert_eq!(code, Some(0));
    let values = |shown: &str| -> Vec<String> {
        shown.lines().map(|line| line.split(" #").next().unwrap_or_default().trim_end().to_owned()).collect()
    };
    assert_eq!(values(&shown), values(&again));
}

#[test]
fn a_check_finds_all_errors_in_a_file() {
    let site = Site::with_index();
    let (code, shown, message) = check(&site, "cach_mb = 1\nport = \"80\"\nworkers = 0\nfollow = 1\n\n[redirects]\n");
    assert_eq!((code, shown.as_str()), (Some(2), ""));
    let path = site.path.join("serve.toml");
    for part in [
        ":1:1: there is no option `cach_mb`; did you mean `cache_mb`?\n  1 | cach_mb = 1\n    | ^^^^^^^\n",
        ":2:8: `port` takes a whole number without quotes, and this is a string; write `port = 80`",
        ":3:11: 0 is not possible here; write a number from 1 to 1024, for example 1",
        ":4:10: `follow` takes true or false, and this is an integer; write `follow = true`",
    ] {
        assert!(message.contains(&format!("dapple: {}{part}", path.display())), "{part}\n--- in\n{message}");
    }
    let (code, _, message) = check(&site, "port = 80\n[unheard_of]\nx = 1\n");
    assert_eq!(code, Some(2));
    assert!(message.contains(":2:2: there is no `unheard_of` here"), "{message}");
    let (code, _, message) = check(&site, "port = \n");
    assert_eq!(code, Some(2));
    assert!(message.contains(":1:") && message.contains("this is not TOML"), "{message}");
}

#[test]
fn a_check_looks_at_the_files_in_options() {
    let site = Site::with_index();
    let (code, _, message) = outcome(dapple().args(["serve", "--check", "/no/such/place"]));
    assert_eq!(code, Some(1));
    assert!(message.contains("there is no directory"), "{message}");
    let (code, _, message) = outcome(dapple().args(["serve", "--check", "--config", "/no/such.toml"]).arg(&site.path));
    assert_eq!(code, Some(2));
    assert!(message.contains("/no/such.toml: cannot read this file"), "{message}");
}

#[test]
fn an_invalid_variable_is_named() {
    let site = Site::with_index();
    let mut command = dapple();
    command.args(["serve", "--check"]).arg(&site.path).env("DAPPLE_SERVE_PORT", "http").env("DAPPLE_SERVE_PROT", "80");
    let (code, _, message) = outcome(&mut command);
    assert_eq!(code, Some(2));
    assert!(message.contains("DAPPLE_SERVE_PORT=http: http is not possible here"), "{message}");
    let (code, _, message) = outcome(command.env("DAPPLE_SERVE_PORT", ""));
    assert_eq!(code, Some(0));
    assert!(message.contains("DAPPLE_SERVE_PROT"), "a warning: {message}");
}

#[test]
fn the_example_file_is_right() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serve.toml");
    let (code, shown, message) = outcome(dapple().args(["serve", "--check", "--config", path]));
    assert_eq!((code, message.as_str()), (Some(0), ""));
    assert!(shown.contains("addr = [\"127.0.0.1:8080\"]") && shown.contains("list = true"), "{shown}");
}

#[test]
fn every_option_is_documented() {
    let documented = include_str!("../../../../docs/serve.md");
    let (_, help, _) = outcome(dapple().args(["serve", "--help"]));
    let options: Vec<&str> =
        help.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split(' ').next()).collect();
    assert!(options.len() > 20, "{options:?}");
    for option in options {
        assert!(documented.contains(&format!("`--{option}")), "--{option} is not in docs/serve.md");
    }
}
