//! Opens a log, new or as the last process left it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::{FlockOperation, flock};
use tracing::warn;

use super::record::{self, MAGIC, RECORD_LEN};
use super::{Log, Shared, Tail, Waiting};

/// The reason why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("there is no folder for the log {0}; create it with `mkdir -p`, or choose another file")]
    NoFolder(String),
    #[error("cannot open the log {0}: {1}; choose another file")]
    Open(String, #[source] io::Error),
    #[error("{0} is not a regular file; choose another file")]
    NoFile(String),
    #[error("{0} is not a log of `dapple sign`, and stays as it is; choose another file")]
    Foreign(String),
    #[error("another process writes to the log {0}; stop that process, or choose another file")]
    Taken(String),
}

impl Log {
    /// Opens or creates the log in a file, and locks it against other processes. Cuts off an
    /// incomplete record that a dead process left at the end. Blocks.
    ///
    /// # Errors
    ///
    /// The file cannot be used as a log.
    pub(crate) fn open(path: &Path, is_durable: bool, len_max: u64) -> Result<Log, OpenError> {
        let name = path.display().to_string();
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => OpenError::NoFolder(name.clone()),
            _ => OpenError::Open(name.clone(), error),
        };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(OpenError::NoFile(name));
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| OpenError::Taken(name.clone()))?;
        let (len, next) =
            tail(&file, metadata.len()).map_err(failed)?.ok_or_else(|| OpenError::Foreign(name.clone()))?;
        if len < metadata.len() {
            warn!(log = name, bytes = metadata.len() - len, "cut off an incomplete record at the end of the log");
            file.set_len(len).map_err(failed)?;
        }
        if is_durable {
            file.sync_all().and_then(|()| sync_folder(path)).map_err(failed)?;
        }
        let tail = Mutex::new(Tail { file, len, next, broken: None, is_failing: false });
        let waiting = Mutex::new(Waiting::default());
        Ok(Log(Arc::new(Shared { tail, waiting, leading: Mutex::new(()), is_durable, len_max })))
    }
}

/// The length of the whole records in a file, and the number of the next one; `None` if the file is
/// not a log.
fn tail(file: &File, file_len: u64) -> io::Result<Option<(u64, u64)>> {
    let mut record = [0; RECORD_LEN];
    let begin = usize::try_from(file_len).unwrap_or(RECORD_LEN).min(RECORD_LEN);
    file.read_exact_at(&mut record[..begin], 0)?;
    let shown = begin.min(MAGIC.len());
    if record[..shown] != MAGIC[..shown] || (begin == RECORD_LEN && record::sequence(&record).is_none()) {
        return Ok(None);
    }
    let mut len = file_len - file_len % RECORD_LEN as u64;
    while len > 0 {
        file.read_exact_at(&mut record, len - RECORD_LEN as u64)?;
        if let Some(sequence) = record::sequence(&record) {
            return Ok(Some((len, sequence + 1)));
        }
        len -= RECORD_LEN as u64;
    }
    Ok(Some((0, 1)))
}

/// The name of a new file is durable only when its folder is.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
