//! `dapple serve` and other servers, started as by a user.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::suite;
use crate::workspace::{Workspace, cargo};

/// Builds the program with the features that the tests use: a plain build would give its
/// dependencies other features, and so build them again.
pub(crate) fn build(workspace: &Workspace) -> Result<PathBuf, String> {
    let built = cargo().arg("test").args(suite::ALL.split(' ')).args(["--test", "it", "--no-run"]).status();
    if !built.map_err(|error| format!("cannot run cargo: {error}"))?.success() {
        return Err("`dapple` could not be built".to_owned());
    }
    Ok(workspace.target.join("debug/dapple"))
}

/// A running server; ended on drop.
pub(crate) struct Server {
    child: Child,
    /// Its announced address.
    pub(crate) url: String,
    /// Kept open: otherwise a program that writes more would fail.
    output: Option<BufReader<ChildStdout>>,
}

impl Server {
    pub(crate) fn start(dapple: &Path, site: &Path, options: &[&str]) -> Result<Server, String> {
        let mut command = Command::new(dapple);
        command.arg("serve").arg(site).args(["--port", "0"]).args(options);
        Server::spawn(command)
    }

    /// Any program that prints its address in its first line.
    pub(crate) fn spawn(mut command: Command) -> Result<Server, String> {
        let child = command.stdout(Stdio::piped()).spawn();
        let child = child.map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let mut server = Server { child, url: String::new(), output: None };
        let mut line = String::new();
        let mut output = BufReader::new(server.child.stdout.take().ok_or("it has no output")?);
        output.read_line(&mut line).map_err(|error| format!("cannot read what it says: {error}"))?;
        server.url = url(&line).ok_or_else(|| format!("{command:?} did not say where: {line:?}"))?;
        server.output = Some(output);
        Ok(server)
    }

    /// The address in the next line that it prints.
    pub(crate) fn next_url(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let output = self.output.as_mut().ok_or("it has no output")?;
        output.read_line(&mut line).map_err(|error| format!("cannot read what it says: {error}"))?;
        url(&line).ok_or_else(|| format!("there is no address in {line:?}"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The port at which it serves.
    pub(crate) fn port(&self) -> &str {
        self.url.rsplit(':').next().unwrap_or_default().trim_end_matches('/')
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first address in a line, such as `Serving site at http://127.0.0.1:8080, …`.
fn url(line: &str) -> Option<String> {
    let word = line.split_whitespace().find(|word| word.starts_with("http://") || word.starts_with("https://"))?;
    Some(word.trim_end_matches([',', '.', ';', ')']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::url;

    #[test]
    fn an_address_is_found_in_a_line() {
        assert_eq!(url("at http://127.0.0.1:80 (2 workers)\n").as_deref(), Some("http://127.0.0.1:80"));
        assert_eq!(url("see https://[::1]:443/, and stop\n").as_deref(), Some("https://[::1]:443/"));
        assert_eq!(url("no address\n"), None);
    }
}
