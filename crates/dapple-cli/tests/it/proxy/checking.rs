//! `dapple proxy --check`, and the file that it reads.

use std::process::Command;

use crate::config::outcome;
use crate::support::{Server, Site, dapple};

/// The outcome of `dapple proxy --check` for a file.
fn check(folder: &Site, file: &str) -> (Option<i32>, String, String) {
    folder.write("proxy.toml", file);
    outcome(dapple().args(["proxy", "--check", "--config"]).arg(folder.path.join("proxy.toml")))
}

#[test]
fn a_check_shows_the_settings_in_use_and_does_not_listen() {
    let folder = Site::new();
    // The port is taken, which a check does not detect, because it runs before a restart.
    let running = Server::start_proxy(&[]);
    folder.write("proxy.toml", format!("port = {}\ncache_mb = 64\nconnect_port = [8443]\n", running.port));
    let mut command = dapple();
    command.args(["proxy", "--check", "--tunnels", "7", "--config"]).arg(folder.path.join("proxy.toml"));
    let (code, shown, message) = outcome(command.env("DAPPLE_PROXY_ALLOW_DESTINATION", "wiki.intern,10.0.0.0/8"));
    assert_eq!((code, message.as_str()), (Some(0), ""));
    for part in [
        "# Cache",
        "cache_mb = 64",
        "# line 2 of the file",
        "connect_port = [8443]",
        "tunnels_max = 7",
        "# command line",
        "allow_destination = [\"wiki.intern\", \"10.0.0.0/8\"]",
        "# DAPPLE_PROXY_ALLOW_DESTINATION",
        "object_max_kb = 8192",
        "# workers is not set",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    // The output is itself a configuration file.
    assert_eq!(check(&folder, &shown).0, Some(0));
}

#[test]
fn a_check_finds_all_errors_in_a_file() {
    let folder = Site::new();
    let (code, shown, message) = check(
        &folder,
        "cach_mb = 1\ntunnels = \"7\"\ndrain_s = 99999\nallow_clients = [\"all\"]\nconnect_port = [0]\ncheck = true\n",
    );
    assert_eq!((code, shown.as_str()), (Some(2), ""));
    let path = folder.path.join("proxy.toml");
    for part in [
        ":1:1: there is no option `cach_mb`; did you mean `cache_mb`?\n  1 | cach_mb = 1\n    | ^^^^^^^\n",
        ":2:11: `tunnels_max` takes a whole number without quotes, and this is a string; write `tunnels_max = 7`",
        ":3:11: 99999 is not possible here; write seconds from 0 to 3600, for example 9",
        ":4:17: write a network or an address, for example 192.168.1.0/24, 10.1.2.3 or fd00::/8",
        ":5:16: 0 is not possible here; write a number from 1 to 65535, for example 1",
        ":6:1: `check` can only be given on the command line, as --check",
    ] {
        assert!(message.contains(&format!("dapple: {}{part}", path.display())), "{part}\n--- in\n{message}");
    }
    let (code, _, message) = check(&folder, "port = 0\n[redirect]\nfrom = '/'\n");
    assert_eq!(code, Some(2));
    assert!(message.contains(":2:2: there is no `redirect` here; the file has no tables"), "{message}");
    // Not only with `--check`.
    let (code, _, again) = outcome(dapple().args(["proxy", "--config"]).arg(path));
    assert_eq!((code, again), (Some(2), message));
}

#[test]
fn a_check_looks_at_the_files_in_options() {
    let folder = Site::new();
    for (options, expected) in [
        (&["--addr", "nowhere.invalid:3128"][..], "cannot find the host \"nowhere.invalid\""),
        (&["--addr", "0.0.0.0:3128"], "--allow-clients"),
        (&["--addr", "127.0.0.1:1", "--addr", "[::]:3128"], "--allow-clients"),
        (&["--access-log", "/no/such/folder/log"], "the access log"),
        (&["--config", "/no/such.toml"], "/no/such.toml: cannot read this file"),
    ] {
        let (code, shown, message) = outcome(dapple().args(["proxy", "--check"]).args(options));
        let is_misuse = options[0] == "--config";
        assert_eq!((code, shown.as_str()), (Some(if is_misuse { 2 } else { 1 }), ""), "{options:?}: {message}");
        assert!(message.contains(expected), "{options:?}: {message}");
    }
    let (code, _, message) = check(&folder, "addr = ['0.0.0.0:3128', '[::1]:3128']\nallow_clients = ['10.0.0.0/8']\n");
    assert_eq!((code, message.as_str()), (Some(0), ""));
}

#[test]
fn the_example_file_is_right() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proxy.toml");
    let (code, shown, message) = outcome(dapple().args(["proxy", "--check", "--config", path]));
    assert_eq!((code, message.as_str()), (Some(0), ""));
    assert!(shown.contains("allow_clients = [\"192.168.1.0/24\"]"), "{shown}");
}

#[test]
fn every_option_is_documented() {
    let documented = include_str!("../../../../../docs/proxy.md");
    let (_, help, _) = outcome(dapple().args(["proxy", "--help"]));
    let options: Vec<&str> =
        help.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split(' ').next()).collect();
    assert!(options.len() > 20, "{options:?}");
    for option in options {
        assert!(documented.contains(&format!("`--{option}")), "--{option} is not in docs/proxy.md");
    }
}

#[test]
fn several_addresses() {
    let mut command: Command = dapple();
    command.args(["proxy", "--addr", "127.0.0.1:0", "--addr", "127.0.0.2:0", "--workers", "1"]);
    let proxy = Server::spawn(command);
    assert_eq!(proxy.get("/-/status").status, 200);
    let other = proxy.line.split("http://127.0.0.2:").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert_eq!(Server::get_at(("127.0.0.2", other.parse().unwrap()), "/-/status").status, 200);
}
