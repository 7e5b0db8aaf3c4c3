//! Replicas of a host that was killed: they run on, and the next start of the host ends them.
//!
//! Each running replica has a file in the host's folder, with the number and the start of its process. Together they name a process for good:
//! a number alone may belong to another one by now.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dapple_io::time::sleep;
use rustix::process::{Pid, Signal, kill_process_group};

use super::machine::start_of;

/// The folder of a host.
#[derive(Clone, Debug)]
pub(crate) struct Leftovers(PathBuf);

impl Leftovers {
    /// Makes the folder.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub(crate) fn open(folder: &Path) -> io::Result<Leftovers> {
        fs::create_dir_all(folder)?;
        Ok(Leftovers(folder.to_owned()))
    }

    /// Notes that a process runs. An error is a warning: the replica is not worse for it.
    pub(crate) fn note(&self, replica: &str, pid: u32) {
        let Some(start) = start_of(pid) else { return };
        if let Err(error) = fs::write(self.0.join(replica), format!("{pid} {start}\n")) {
            tracing::warn!(replica, %error, "if this host is killed, its next start will not find this replica");
        }
    }

    /// Forgets it.
    pub(crate) fn forget(&self, replica: &str) {
        let _not_noted = fs::remove_file(self.0.join(replica));
    }

    /// Ends what an earlier start has left: first by SIGTERM, then by SIGKILL. Returns the number.
    pub(crate) async fn end_all(&self) -> usize {
        let Ok(files) = fs::read_dir(&self.0) else { return 0 };
        let mut left = Vec::new();
        for file in files.flatten().map(|file| file.path()) {
            match running(&file) {
                Some(pid) => left.push((file, pid)),
                None => drop(fs::remove_file(&file)),
            }
        }
        for (file, pid) in &left {
            tracing::warn!(replica = %file.display(), pid = pid.as_raw_pid(), "an earlier start has left this replica; it ends now");
            let _over = kill_process_group(*pid, Signal::TERM);
        }
        let count = left.len();
        for _ in 0..LOOKS {
            left.retain(|(file, _)| running(file).is_some());
            if left.is_empty() {
                break;
            }
            sleep(LOOK_EVERY).await;
        }
        for (_, pid) in &left {
            let _over = kill_process_group(*pid, Signal::KILL);
        }
        count
    }
}

/// The process of a file, if it still runs.
fn running(file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(file).ok()?;
    let (pid, start) = text.trim().split_once(' ')?;
    let (pid, start): (u32, u64) = (pid.parse().ok()?, start.parse().ok()?);
    // A process that has ended and has no parent to say so is none that runs.
    let is_it = start_of(pid) == Some(start) && !is_zombie(pid);
    is_it.then(|| i32::try_from(pid).ok().and_then(Pid::from_raw)).flatten()
}

fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}

const LOOKS: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(100);
