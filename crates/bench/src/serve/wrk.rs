//! The load: `wrk` with a script that asks for one file after the other and prints its summary as JSON.

use super::site::Site;
use crate::machine::{Guard, bound_command};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// A load generator with its script.
pub(crate) struct Wrk {
    program: PathBuf,
    script: PathBuf,
}

/// What one run of wrk counted.
#[derive(Deserialize, Debug, PartialEq)]
pub(crate) struct Load {
    /// Answers received.
    pub(crate) requests: u64,
    /// Length of the run.
    pub(crate) duration_us: f64,
    /// Answers other than 2xx and 3xx, and errors of connecting, reading, writing and waiting.
    pub(crate) errors: u64,
    /// Median latency.
    pub(crate) p50_us: f64,
    /// Latency that one answer in a hundred exceeded.
    pub(crate) p99_us: f64,
}

/// Connections held open by the load.
pub(crate) const CONNECTIONS: usize = 64;

impl Wrk {
    /// Writes the script for a site.
    pub(crate) fn new(program: &Path, site: &Site) -> Result<Wrk> {
        let script = site.scratch().join("load.lua");
        std::fs::write(&script, lua(site.paths())).context("cannot write wrk's script")?;
        Ok(Wrk { program: program.to_owned(), script })
    }

    /// Loads the server for some seconds; `core` is where to run, if it matters.
    pub(crate) fn run(&self, base: &str, secs: u64, threads: usize, core: Option<usize>) -> Result<Load> {
        let mut command = bound_command(&self.program, core)?;
        command.arg("--threads").arg(threads.to_string()).arg("--connections").arg(CONNECTIONS.to_string());
        command.arg("--duration").arg(format!("{secs}s")).arg("--timeout").arg("5s");
        command.arg("--script").arg(&self.script).arg(base).stdout(Stdio::piped());
        let text = Guard::start("wrk", &mut command)?.output(Duration::from_secs(secs + 20))?;
        parse(&text)
    }
}

/// The requests are formatted once: what the script does per request is one look-up.
fn lua<'a>(paths: impl Iterator<Item = &'a str>) -> String {
    let list: Vec<String> = paths.map(|path| format!("  {path:?},\n")).collect();
    format!("local paths = {{\n{}}}\n{LUA}", list.concat())
}

const LUA: &str = r#"
local requests, position = {}, 0
function init(args)
  for index, path in ipairs(paths) do requests[index] = wrk.format("GET", path) end
end
function request()
  position = position % #requests + 1
  return requests[position]
end
function done(summary, latency, requests)
  local bad = summary.errors
  io.write(string.format(
    '\nRESULT {"requests":%d,"duration_us":%d,"errors":%d,"p50_us":%d,"p99_us":%d}\n',
    summary.requests, summary.duration,
    bad.connect + bad.read + bad.write + bad.status + bad.timeout,
    latency:percentile(50), latency:percentile(99)))
end
"#;

fn parse(text: &str) -> Result<Load> {
    let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    serde_json::from_str(line.context("wrk printed no summary")?).context("wrk's summary is not what its script prints")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_found_among_the_rest() {
        let text =
            "Running 1s test\n\nRESULT {\"requests\":7,\"duration_us\":10,\"errors\":1,\"p50_us\":2,\"p99_us\":3}\n";
        let load = parse(text).expect("a summary");
        assert_eq!(load, Load { requests: 7, duration_us: 10.0, errors: 1, p50_us: 2.0, p99_us: 3.0 });
        assert!(parse("Running 1s test").is_err());
    }

    #[test]
    fn script_lists_the_paths() {
        assert!(lua(["/a", "/b"].into_iter()).starts_with("local paths = {\n  \"/a\",\n  \"/b\",\n}\n"));
    }
}
