//! Seeds that failed: the next run tries them first.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file with a line `SCENARIO SEED` for each seed that failed. It is written with each change, so that an interrupted run keeps what it found.
pub(crate) struct Kept {
    file: PathBuf,
    seeds: Vec<(String, u64)>,
}

impl Kept {
    /// Reads the file; there are no seeds if it does not exist. Lines of another form are skipped, because the file is only a memory.
    pub(crate) fn read(file: &Path) -> io::Result<Kept> {
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let line = |line: &str| {
            let (name, seed) = line.split_once(' ')?;
            Some((name.to_owned(), seed.trim().parse().ok()?))
        };
        Ok(Kept { file: file.to_owned(), seeds: text.lines().filter_map(line).collect() })
    }

    /// The seeds of a scenario, in the order in which they failed.
    pub(crate) fn of(&self, name: &str) -> Vec<u64> {
        self.seeds.iter().filter(|(of, _)| of == name).map(|(_, seed)| *seed).collect()
    }

    /// Adds a seed that failed, unless there are [`KEPT_MAX`] of this scenario.
    pub(crate) fn add(&mut self, name: &str, seed: u64) -> io::Result<()> {
        let of_this = self.of(name);
        if of_this.len() == KEPT_MAX || of_this.contains(&seed) {
            return Ok(());
        }
        self.seeds.push((name.to_owned(), seed));
        self.write()
    }

    /// Removes a seed that does not fail any more.
    pub(crate) fn remove(&mut self, name: &str, seed: u64) -> io::Result<()> {
        self.seeds.retain(|(of, kept)| of != name || *kept != seed);
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder)?;
        }
        let text: String = self.seeds.iter().map(|(name, seed)| format!("{name} {seed}\n")).collect();
        fs::write(&self.file, text)
    }
}

/// The file, if the arguments name none.
pub(crate) fn default_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/failing-seeds")
}

/// Seeds of one scenario that the file has, at most: one fault often makes hundreds of seeds fail.
pub(crate) const KEPT_MAX: usize = 16;
