//! The destination of lines: a file, or stdout.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tracing::warn;

/// An open file, or stdout.
pub(super) struct Sink {
    /// The log's name in messages.
    name: &'static str,
    path: PathBuf,
    /// `None` is stdout.
    file: Option<File>,
    /// The number of lines lost since writing began to fail; `None` while it works.
    lost: Option<u64>,
    /// Whether the last written byte did not end a line.
    is_mid_line: bool,
}

impl Sink {
    /// Opens `path` for appending; `-` is stdout.
    pub(super) fn open(name: &'static str, path: &Path) -> io::Result<Sink> {
        let file = if path == Path::new("-") { None } else { Some(open(path)?) };
        Ok(Sink { name, path: path.to_owned(), file, lost: None, is_mid_line: false })
    }

    /// Opens the path again, or another one. If that fails, writes to the old file as before.
    pub(super) fn reopen(&mut self, elsewhere: Option<PathBuf>) {
        let path = elsewhere.unwrap_or_else(|| self.path.clone());
        if path == self.path && self.file.is_none() {
            return;
        }
        match Sink::open(self.name, &path) {
            Ok(Sink { path, file, .. }) => (self.path, self.file, self.is_mid_line) = (path, file, false),
            Err(error) => {
                let name = self.name;
                warn!(%error, path = %path.display(), "cannot reopen the {name}; writing to the old file");
            }
        }
    }

    /// Writes whole lines, and returns how many of them were lost.
    pub(super) fn write(&mut self, lines: &[u8]) -> u64 {
        let mut rest = lines;
        let outcome = self.try_write(&mut rest);
        let lost = rest.iter().filter(|byte| **byte == b'\n').count() as u64;
        match (outcome, &mut self.lost) {
            (Ok(()), None) => {}
            (Ok(()), Some(lost)) => {
                warn!(lost = *lost, "the {} works again", self.name);
                self.lost = None;
            }
            (Err(_), Some(all)) => *all += lost,
            (Err(error), None) => {
                let (name, path) = (self.name, self.path.display());
                warn!(%error, %path, "cannot write to the {name}; the server goes on and loses its lines meanwhile");
                self.lost = Some(lost);
            }
        }
        lost
    }

    fn try_write(&mut self, rest: &mut &[u8]) -> io::Result<()> {
        if self.is_mid_line {
            // A truncated line stays a line of its own.
            self.write_some(b"\n")?;
            self.is_mid_line = false;
        }
        while let Some(last) = rest.last() {
            let last = *last;
            let len = self.write_some(rest)?;
            self.is_mid_line = match len == rest.len() {
                true => last != b'\n',
                false => rest[..len].last().is_some_and(|byte| *byte != b'\n'),
            };
            *rest = &rest[len..];
        }
        Ok(())
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let written = match &mut self.file {
                Some(file) => file.write(bytes),
                None => {
                    let mut stdout = io::stdout().lock();
                    stdout.write_all(bytes).and_then(|()| stdout.flush()).map(|()| bytes.len())
                }
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

/// Every write goes to the current end: other programs may truncate the file, or write to it.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::Sink;

    #[test]
    fn unwritten_lines_are_counted_and_the_rest_is_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let mut sink = Sink::open("access log", &path).unwrap();
        assert_eq!(sink.write(b"one\ntwo\n"), 2);
        assert_eq!(sink.write(b"three\n"), 1);
        std::fs::remove_file(&path).unwrap();
        sink.reopen(None);
        assert_eq!(sink.write(b"four\n"), 0);
        assert_eq!(std::fs::read(&path).unwrap(), b"four\n");
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        assert_eq!(sink.write(b"five\n"), 0);
        sink.reopen(None);
        assert_eq!(sink.write(b"six\n"), 0);
        assert_eq!(std::fs::read(folder.path().join("old")).unwrap(), b"four\nfive\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"six\n");
        sink.reopen(Some(folder.path().join("nowhere/log")));
        assert_eq!(sink.write(b"seven\n"), 0);
        assert_eq!(std::fs::read(&path).unwrap(), b"six\nseven\n", "without another file, the old one stays");
        let other = folder.path().join("other");
        sink.reopen(Some(other.clone()));
        sink.reopen(None);
        assert_eq!(sink.write(b"eight\n"), 0);
        assert_eq!(std::fs::read(&other).unwrap(), b"eight\n");
    }
}
