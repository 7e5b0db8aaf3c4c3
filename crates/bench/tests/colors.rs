//! The peers of `colors` in other languages, from the command line to their JSON lines.

mod cli;

use cli::{fails_naming, rows};
use std::process::Command;

#[test]
fn peers_in_other_languages() {
    let few = [
        "--workers",
        "2",
        "--work-ns",
        "0",
        "--in-flight",
        "8",
        "--colors",
        "4",
        "--placement",
        "gathered",
        "--secs",
        "0.1",
    ];
    let peers = "dapple,go-channel,go-mailbox,go-mutex,asio-strand";
    let all = ["colors", "--peer", peers, "--workload", "w1,w2,w3,w3-in-line,w4,w5"];
    let rows = rows(&[&all[..], &few].concat());
    let of = |peer: &str| rows.iter().filter(|row| row["peer"] == peer).count();
    assert_eq!(of("dapple"), 6, "{rows:#?}");
    // Without their compilers they are left out.
    let is_there = |program: &str, flag: &str| Command::new(program).arg(flag).output().is_ok();
    if is_there("go", "version") {
        assert_eq!((of("go-channel"), of("go-mailbox"), of("go-mutex")), (4, 4, 2), "{rows:#?}");
    }
    if !is_there("g++", "--version") {
        assert_eq!(of("asio-strand"), 0, "{rows:#?}");
    }
    for row in rows {
        for figure in ["rate_per_s", "cpu_ns_per_op", "switches_per_op", "wakes_per_op"] {
            assert!(row[figure].as_f64().is_some_and(|figure| figure >= 0.0), "{figure}: {row}");
        }
        assert_eq!(row["order_breaks"], 0, "{row}");
    }
}

#[test]
fn a_peer_without_a_form_of_the_workload_is_refused() {
    fails_naming(&["colors", "--peer", "go-mutex", "--workload", "w1"], "none of the peers asked for has a form of w1");
}
