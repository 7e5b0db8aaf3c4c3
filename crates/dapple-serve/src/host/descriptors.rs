//! The limit on file descriptors, and how the process shares them out.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// The process's descriptors, shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The most connections at a time.
    pub connections: usize,
    /// Whether there are fewer descriptors than wanted: at the limit, accepting pauses until a
    /// connection ends.
    pub is_short: bool,
    /// Open files that the file-handle cache may keep, or other descriptors beyond one for each
    /// connection.
    pub files: u64,
}

/// Raises the soft limit on descriptors to the hard limit, and shares them out: enough for at most
/// `wanted` connections that take `each`, the rest for the file-handle cache and the runtime. Warns
/// if fewer than `enough` are left.
pub fn shares(wanted: usize, each: u64, enough: usize) -> Shares {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // If the system refuses, the limit stays as it was.
    let now = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    let shares = share_out(now.current.unwrap_or(u64::MAX), wanted, each);
    if shares.connections < enough {
        warn!(
            descriptors = now.current,
            connections = shares.connections,
            "the limit on open files leaves room for fewer connections; raise it with `ulimit -n`"
        );
    }
    shares
}

fn share_out(descriptors: u64, wanted: usize, each: u64) -> Shares {
    let files = (descriptors / 4).clamp(1, FILES_MAX);
    let reserve = (descriptors / 8 + RESERVE_MIN).min(RESERVE_MAX);
    let room = usize::try_from(descriptors.saturating_sub(files + reserve) / each).unwrap_or(usize::MAX).max(1);
    Shares { connections: room.min(wanted), is_short: room < wanted, files }
}

/// The most files that the file-handle cache keeps open, however many descriptors there are.
pub const FILES_MAX: u64 = 512;

/// Descriptors for the runtime, and for streaming files that the cache has dropped.
const RESERVE_MIN: u64 = 16;
const RESERVE_MAX: u64 = 128;

#[cfg(test)]
mod tests {
    use super::{Shares, share_out};

    #[test]
    fn few_descriptors_still_serve_several_connections() {
        assert_eq!(share_out(64, 10_000, 1), Shares { connections: 24, is_short: true, files: 16 });
        assert_eq!(share_out(1_024, 10_000, 1), Shares { connections: 640, is_short: true, files: 256 });
        assert_eq!(share_out(20_000, 10_000, 1), Shares { connections: 10_000, is_short: false, files: 512 });
        assert_eq!(share_out(u64::MAX, 7, 1), Shares { connections: 7, is_short: false, files: 512 });
        assert_eq!(share_out(20_000, 10_000, 2), Shares { connections: 9_680, is_short: true, files: 512 });
        assert_eq!(share_out(3, 10, 2).connections, 1);
    }
}
