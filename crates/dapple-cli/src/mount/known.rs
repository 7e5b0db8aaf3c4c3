//! The servers that were mounted before, each with the SHA-256 of its certificate.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file of the known servers, a line for each: the URL, a space, the SHA-256.
pub(super) struct Known(PathBuf);

type Failed = (PathBuf, io::Error);

impl Known {
    /// Finds the file; it need not exist.
    ///
    /// # Errors
    ///
    /// Neither `XDG_STATE_HOME` nor `HOME` is set.
    pub(super) fn open() -> Result<Known, Failed> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
        let missing = || {
            let error = io::Error::new(io::ErrorKind::NotFound, "neither XDG_STATE_HOME nor HOME is set");
            (PathBuf::from("~/.local/state/dapple"), error)
        };
        Ok(Known(state.ok_or_else(missing)?.join("dapple/known-servers")))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The SHA-256 that is stored for a server.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(super) fn fingerprint(&self, server: &str) -> Result<Option<String>, Failed> {
        let text = match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| (self.0.clone(), error))?,
        };
        let found = text.lines().filter_map(|line| line.split_once(' ')).find(|(known, _)| *known == server);
        Ok(found.map(|(_, fingerprint)| fingerprint.trim().to_owned()))
    }

    /// Stores the SHA-256 of a server, in place of another one.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn store(&self, server: &str, fingerprint: &str) -> Result<(), Failed> {
        let stored = || {
            if let Some(dir) = self.0.parent() {
                fs::create_dir_all(dir)?;
            }
            let text = fs::read_to_string(&self.0).unwrap_or_default();
            let others = text.lines().filter(|line| line.split_once(' ').is_none_or(|(known, _)| known != server));
            let mut lines: Vec<&str> = others.collect();
            let own = format!("{server} {fingerprint}");
            lines.push(&own);
            let aside = self.0.with_extension(std::process::id().to_string());
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
            writeln!(file, "{}", lines.join("\n"))?;
            fs::rename(&aside, &self.0)
        };
        stored().map_err(|error| (self.0.clone(), error))
    }
}
