//! The commands of developers and CI: `cargo xtask ci`, `test`, `tidy`, `mutants`, `browser`,
//! `h2spec`, `cache-tests`, `databases`, `etcd`, `colored`, `site`, `links`, `bench`, `results`, `fuzz`,
//! `sanitize`, `sim`, `soak`, `store-torture`.
//!
//! CI is one command, the same on a laptop, and needs nothing but the Rust toolchain and the
//! network for the dependencies' first download.

#![forbid(unsafe_code)]

mod apt;
mod browser;
mod cache_tests;
mod colored;
mod databases;
mod drawing;
mod etcd;
mod fuzz;
mod h2spec;
mod licenses;
mod mutants;
mod prose;
mod redis_clients;
mod results;
mod sanitize;
mod served;
mod sim;
mod site;
mod soak;
mod steps;
mod suite;
mod targets;
mod tidy;
mod torture;
mod workspace;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] | ["help" | "--help" | "-h"] => say(HELP),
        ["ci"] => suite::ci(),
        ["test"] => suite::test(),
        ["tidy"] => tidy::run(),
        ["tidy", "--plain", paths @ ..] => tidy::plain::run(paths),
        ["licenses"] => licenses::run(),
        ["mutants", words @ ..] => mutants::run(words),
        ["colored"] => colored::run(false),
        ["colored", "--list"] => colored::run(true),
        ["sentences", .., "--help" | "-h"] => say(prose::sample::HELP),
        ["sentences", rest @ ..] => prose::sample::run(rest),
        ["browser"] => browser::run(),
        ["drawing"] => drawing::run(),
        ["site"] => site::run(),
        ["links"] => site::check(),
        ["h2spec"] => h2spec::run(),
        ["cache-tests"] => cache_tests::run(),
        ["databases"] => databases::run(),
        ["etcd"] => etcd::run(),
        ["redis-clients"] => redis_clients::run(),
        ["results", .., "--help" | "-h"] => say(results::HELP),
        ["results"] => results::run(false),
        ["results", "--check"] => results::run(true),
        ["results", word, ..] => Err(format!("`results` takes --check, not `{word}`")),
        ["bench"] => say(BENCH_HELP),
        ["bench", rest @ ..] => suite::bench(rest),
        ["fuzz", .., "--help" | "-h"] => say(fuzz::HELP),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["sanitize", .., "--help" | "-h"] => say(sanitize::HELP),
        ["sanitize", rest @ ..] => sanitize::run(rest),
        ["sim", .., "--help" | "-h"] => say(sim::HELP),
        ["sim", rest @ ..] => sim::run(rest),
        ["store-torture", .., "--help" | "-h"] => say(torture::HELP),
        ["store-torture", rest @ ..] => torture::run(rest),
        ["soak"] | ["soak", .., "--help" | "-h"] => say(soak::HELP),
        ["soak", rest @ ..] => soak::run(rest),
        [
            command @ ("ci" | "test" | "tidy" | "licenses" | "drawing" | "links" | "site" | "browser" | "h2spec"
            | "cache-tests" | "databases" | "etcd" | "redis-clients"),
            ..,
        ] => Err(format!("`{command}` takes no arguments")),
        [command, ..] => Err(format!("there is no command `{command}`; `cargo xtask` lists them")),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::from(2)
        }
    }
}

/// Prints the text of a command's help.
fn say(help: &str) -> Result<bool, String> {
    print!("{help}");
    Ok(true)
}

const HELP: &str = "\
cargo xtask COMMAND

  test      the tests that CI runs: unit, integration and doc tests, examples built, the scheduler in release mode, loom and shuttle models
  ci        everything CI checks: fmt, tidy, licenses, clippy, test, the scheduler under AddressSanitizer, docs
  tidy      house style as a test: sizes, layers, unsafe code, spelling, plain English;
            `cargo xtask tidy --plain PATH…` lists what is not plain English also where `plain.rs` still exempts it
  sentences a random sample of the sentences in comments, docs and messages; `cargo xtask sentences --help` tells how
  licenses  whether every dependency's license is on the allow list
  mutants   whether the models catch deliberate bugs in what they model; takes words that choose among them
  browser   Chromium loads a page with 200 assets from `dapple serve`, over HTTP/1.1, and over HTTP/2 with TLS
  colored   how much of serve, proxy and the example had to be colored, beside the paper; --list prints each call
  drawing   draws the crates and their dependencies: docs/img/crates.svg
  site      the documentation as a site with search, by mdBook, in target/site/book
  links     whether the links of the documentation lead somewhere, and tests run its programs
  h2spec    the conformance tests of HTTP/2 against `dapple serve`
  cache-tests
            the public tests for HTTP caches (http-cache-tests) against both proxies
  databases sqlx with a real PostgreSQL, redis with a real redis-server
  etcd      stage hosts that register themselves, with a real etcd
  redis-clients
            redis-cli, redis-py and ioredis against `dapple store serve`
  fuzz      looks for bytes that break a parser; `cargo xtask fuzz --help` tells how
  sanitize  what has unsafe code under AddressSanitizer, ThreadSanitizer and Miri; `cargo xtask sanitize --help` tells how
  sim       services in the simulator, under faults that a seed decides; `cargo xtask sim --help` tells how
  store-torture
            histories of a store with killed processes, checked for linearizability; --help tells how
  soak      random programs for hours; `cargo xtask soak --help` tells how
  bench     how to run the benches; `cargo xtask bench ARGS` runs them
  results   writes the tables of saved runs into bench/RESULTS.md; `cargo xtask results --help` tells how
";

const BENCH_HELP: &str = "\
The benches check their own results; crates/bench/README.md tells what the fields mean.

  cargo xtask bench colors                 callbacks: Dapple beside tokio, about five minutes
  cargo xtask bench colors --json          one JSON line per run
  cargo xtask bench web                    dapple serve beside nginx, Apache, hyper and Go (apt-get install nginx apache2)
  cargo xtask bench overload               goodput of overloaded servers, Dapple beside hyper, tower and Go, three hours
  cargo xtask bench signserver             dapple sign, built four times: throughput and latency by load, and while one of two is killed
  cargo xtask bench colors --help          all flags
  cargo xtask bench web --save bench/runs/web.jsonl   also saves runs and tables; `cargo xtask results` shows them in bench/RESULTS.md

This builds dapple and bench in release mode, then runs `bench`.
";
