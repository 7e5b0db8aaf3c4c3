//! The workspace according to cargo.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The workspace from `cargo metadata`.
pub(crate) struct Workspace {
    /// Its root folder.
    pub(crate) root: PathBuf,
    /// cargo's build folder; models build in subfolders.
    pub(crate) target: PathBuf,
    /// The packages: our own, or with dependencies, as requested.
    pub(crate) packages: Vec<Value>,
}

impl Workspace {
    /// Our own packages; needs no network.
    pub(crate) fn own() -> Result<Workspace, String> {
        Workspace::read(&["--no-deps"])
    }

    /// All packages of a build on this platform. Those of other platforms are in the lock file,
    /// too, and large.
    pub(crate) fn with_dependencies() -> Result<Workspace, String> {
        let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV").output();
        let version = output.map_err(|error| format!("cannot run rustc: {error}"))?.stdout;
        let version = String::from_utf8_lossy(&version);
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
        Workspace::read(&["--filter-platform", host])
    }

    fn read(flags: &[&str]) -> Result<Workspace, String> {
        let mut command = cargo();
        command.args(["metadata", "--format-version", "1"]).args(flags).stderr(Stdio::inherit());
        let output = command.output().map_err(|error| format!("cannot run cargo: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata failed: {}", output.status));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("cargo metadata printed no JSON: {error}"))?;
        let folder =
            |key: &str| metadata[key].as_str().map(PathBuf::from).ok_or(format!("cargo metadata names no {key}"));
        Ok(Workspace {
            root: folder("workspace_root")?,
            target: folder("target_directory")?,
            packages: metadata["packages"].as_array().cloned().unwrap_or_default(),
        })
    }

    /// A path below the root, for messages.
    pub(crate) fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}

/// The cargo that started this program, or the one on the path.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}
