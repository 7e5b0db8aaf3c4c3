//! The limit on file descriptors, and what it leaves for connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

use super::handles::FILES_MAX;

/// Raises the soft limit on descriptors to the hard one, and gives back how many connections, at most `wanted`, it has
/// room for beside the file-handle cache and the runtime's own.
pub(crate) fn connections(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Where that is refused, the limit stays what it was.
    let now = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    let Some(descriptors) = now.current else {
        return wanted;
    };
    let room = usize::try_from(descriptors).unwrap_or(usize::MAX).saturating_sub(FILES_MAX as usize + RESERVE).max(1);
    if room < wanted {
        warn!(
            descriptors,
            connections = room,
            "the limit on open files leaves room for fewer connections (see `ulimit -n`)"
        );
    }
    room.min(wanted)
}

/// Descriptors of the runtime and of what streams a file that the cache has let go of.
const RESERVE: usize = 128;
