//! The files that rows read and write, made at the first of the rows.

use crate::experiment::BlockFile;
use crate::{proxy, signserver, web};
use anyhow::Result;
use std::any::Any;
use std::path::{Path, PathBuf};

/// The kinds of files that the trials of a row need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Files {
    None,
    /// A file of numbered blocks
    Blocks,
    /// The files that the web servers serve
    Sites,
    /// The files that the origin of the proxies has
    Objects,
    /// A folder for logs
    Logs,
}

/// All files that were made; dropping this value removes them.
pub(super) struct Prepared<'a> {
    folder: &'a Path,
    file_mb: u64,
    /// Each kind of files, or the reason why it cannot be made.
    all: Vec<(Files, Result<Kept, String>)>,
}

/// The path, and the value that removes it when dropped.
type Kept = (PathBuf, Box<dyn Any>);

impl<'a> Prepared<'a> {
    /// Nothing yet. Files of blocks and logs will be in this folder; a file of blocks has this many
    /// megabytes.
    pub(super) fn new(folder: &'a Path, file_mb: u64) -> Prepared<'a> {
        Prepared { folder, file_mb, all: Vec::new() }
    }

    /// Its path, or the reason why it cannot be made; there is only one attempt.
    pub(super) fn path(&mut self, files: Files) -> Result<PathBuf, String> {
        if let Some((_, made)) = self.all.iter().find(|(other, _)| *other == files) {
            return made.as_ref().map(|(path, _)| path.clone()).map_err(Clone::clone);
        }
        let made = self.make(files).map_err(|error| format!("{error:#}"));
        let path = made.as_ref().map(|(path, _)| path.clone()).map_err(Clone::clone);
        self.all.push((files, made));
        path
    }

    fn make(&self, files: Files) -> Result<Kept> {
        let in_folder = |folder: tempfile::TempDir| (folder.path().to_owned(), Box::new(folder) as Box<dyn Any>);
        Ok(match files {
            Files::None => (PathBuf::new(), Box::new(())),
            Files::Blocks => {
                let blocks = BlockFile::write(self.folder, self.file_mb)?;
                (blocks.path(), Box::new(blocks))
            }
            Files::Sites => in_folder(web::write_regret_sites()?),
            Files::Objects => in_folder(proxy::write_objects()?),
            Files::Logs => in_folder(signserver::log_folder(self.folder)?),
        })
    }
}
