//! The limit on file descriptors, and the number of connections it allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Returns how many connections the limit leaves room for. First raises the process's soft limit to
/// the hard limit.
pub(crate) fn connections_max() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // If the system refuses, the limit stays as it was.
    let now = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    room(now.current.unwrap_or(u64::MAX))
}

fn room(descriptors: u64) -> usize {
    let reserve = (descriptors / 4 + RESERVE_MIN).min(RESERVE_MAX);
    usize::try_from(descriptors.saturating_sub(reserve)).unwrap_or(usize::MAX).clamp(1, CONNECTIONS_MAX)
}

/// Descriptors for the runtime, for clients that are turned away, and for files that handlers open.
const RESERVE_MIN: u64 = 16;
const RESERVE_MAX: u64 = 1_024;

/// With more descriptors than this, memory is the limit: an idle connection takes some kilobytes.
const CONNECTIONS_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::room;

    #[test]
    fn some_descriptors_stay_reserved() {
        assert_eq!(room(3), 1);
        assert_eq!(room(64), 32);
        assert_eq!(room(1_024), 752);
        assert_eq!(room(20_000), 18_976);
        assert_eq!(room(u64::MAX), 100_000);
    }
}
