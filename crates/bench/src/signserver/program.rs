//! The program `dapple`: its path, its start, and its secrets.

use crate::machine::bound_to;
use crate::web::dapple_program;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The way to start `dapple`.
pub(super) struct Launch {
    program: PathBuf,
    /// Makes a command that runs a program on these cores.
    bind: fn(&Path, &[usize]) -> Result<Command>,
}

impl Launch {
    /// The program built next to the bench, bound to the life of this process.
    pub(super) fn of_built() -> Result<Launch> {
        Ok(Launch { program: dapple_program()?, bind: bound_to })
    }

    /// A command that runs it on these cores.
    pub(super) fn command(&self, cores: &[usize]) -> Result<Command> {
        (self.bind)(&self.program, cores)
    }

    /// The program built next to a test of the bench, which cannot start itself as `launch`; `None`
    /// if it was not built.
    #[cfg(test)]
    pub(super) fn of_test() -> Option<Launch> {
        let own = std::env::current_exe().ok()?;
        let program = own.parent()?.parent()?.join("dapple");
        program.is_file().then_some(Launch { program, bind: |program, _| Ok(Command::new(program)) })
    }
}

/// The two files with secrets that servers and clients share.
pub(super) struct Secrets([PathBuf; 2]);

impl Secrets {
    /// Writes them; their contents do not affect the figures.
    pub(super) fn write(folder: &Path) -> Result<Secrets> {
        let files = ["first-secret", "second-secret"].map(|name| folder.join(name));
        for file in &files {
            std::fs::write(file, file.file_name().unwrap_or_default().as_encoded_bytes())
                .with_context(|| format!("cannot write {}: pass another --folder", file.display()))?;
        }
        Ok(Secrets(files))
    }

    /// The flags for them.
    pub(super) fn args(&self) -> [OsString; 4] {
        let [first, second] = self.0.clone().map(OsString::from);
        ["--first-secret".into(), first, "--second-secret".into(), second]
    }
}
