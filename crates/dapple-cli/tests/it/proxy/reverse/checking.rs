//! Options that do not go together, and `--check`.

use crate::config::outcome;
use crate::support::{Site, dapple};

#[test]
fn options_without_effect_are_refused() {
    for (options, expected) in [
        (&["--to", "http://a", "--allow-private"][..], "--allow-private (command line) is for a forward proxy only"),
        (&["--to", "http://a", "--forwarded"], "with --to this is always on"),
        (&["--to", "http://a", "--no-status"], "all paths belong to the servers"),
        (
            &["--to", "http://a", "--object-max-kb", "9"],
            "needs a cache, and there is none; set its size with --cache-mb",
        ),
        (
            &["--object-max-kb", "9", "--cache-mb", "0"],
            "needs a cache, and there is none; set its size with --cache-mb",
        ),
        (&["--retries", "1"], "--retries (command line) is for a reverse proxy only; give its servers with --to"),
        (&["--tls-self-signed"], "--tls-self-signed (command line) is for a reverse proxy only"),
        (&["--health-path", "/x"], "is for a reverse proxy only"),
        (&["--to", "http://a", "--health-path", "x"], "\"x\" is not a path; write one such as /healthy"),
        (&["--to", "a:80"], "\"a:80\" has no scheme; write http://HOST:PORT"),
        (&["--to", "http://a,ftp://b"], "ftp:// is not supported"),
        (&["--to", "http://a/b"], "has a path"),
        (&["--to", "http://a", "--tls-cert", "x.pem"], "1 of --tls-cert and 0 of --tls-key"),
        (&["--to", "http://a", "--trust-forwarded", "all"], "write a network or an address"),
    ] {
        let (code, shown, message) = outcome(dapple().arg("proxy").args(options));
        assert_eq!((code, shown.as_str()), (Some(2), ""), "{options:?}: {message}");
        assert!(message.contains(expected), "{options:?}: {message}");
    }
    let (code, _, message) = outcome(dapple().args(["proxy", "--to", "https://a", "--upstream-ca", "/no/such.pem"]));
    assert!(
        code == Some(1) && message.contains("cannot use the certificates of --upstream-ca in \"/no/such.pem\""),
        "{message}"
    );
}

#[test]
fn all_clients_are_admitted_unless_some_are_named() {
    let listen = ["proxy", "--check", "--addr", "0.0.0.0:0"];
    let (code, _, message) = outcome(dapple().args(listen));
    assert!(code == Some(1) && message.contains("--allow-clients"), "{message}");
    let (code, _, message) = outcome(dapple().args(listen).args(["--to", "http://127.0.0.1:1"]));
    assert_eq!((code, message.as_str()), (Some(0), ""));
    let (_, help, _) = outcome(dapple().args(["proxy", "--help"]));
    let words: Vec<&str> = help.split_whitespace().collect();
    assert!(words.join(" ").contains("`--allow-clients` has to list the clients (without --to)"), "{help}");
}

#[test]
fn a_check_shows_the_settings_in_use() {
    let folder = Site::new();
    folder.write("proxy.toml", "to = [\"http://a:1\", \"h2c://b\"]\nhealth_path = \"/h\"\nhealth_interval_s = 0.5\n");
    let check = |name: &str| {
        let mut command = dapple();
        command.args(["proxy", "--check", "--config"]).arg(folder.path.join(name));
        outcome(command.env("DAPPLE_PROXY_RETRIES", "1"))
    };
    let (code, shown, message) = check("proxy.toml");
    assert_eq!((code, message.as_str()), (Some(0), ""));
    for part in ["to = [\"http://a:1\", \"h2c://b\"]", "# line 1 of the file", "retries = 1", "# DAPPLE_PROXY_RETRIES"]
    {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    // The output is itself a configuration file, although it has defaults of the other kind of
    // proxy.
    folder.write("shown.toml", shown);
    let (code, _, message) = check("shown.toml");
    assert_eq!((code, message.as_str()), (Some(0), ""));
    folder.write("bad.toml", "to = [\"http://a\", \"http://b:0\"]\ncache_mb = 8\n");
    let (code, _, message) = check("bad.toml");
    assert!(code == Some(2) && message.contains("bad.toml:1:6: \"http://b:0\" has an invalid port"), "{message}");
    folder.write("mixed.toml", "to = [\"http://a\"]\nforwarded = true\n");
    let (code, _, message) = check("mixed.toml");
    assert!(
        code == Some(2) && message.contains("--forwarded (line 2 of the file) is for a forward proxy"),
        "{message}"
    );
}

#[test]
fn the_example_file_is_right() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reverse.toml");
    let (code, shown, message) = outcome(dapple().args(["proxy", "--check", "--config", path]));
    assert_eq!((code, message.as_str()), (Some(0), ""));
    assert!(shown.contains("health_interval_s = 2.5"), "{shown}");
}
