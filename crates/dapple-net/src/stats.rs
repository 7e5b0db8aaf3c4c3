//! Counts of a network.

/// Counts of a network, all its devices together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Packets that came.
    pub received: u64,
    /// Packets that were given to the device.
    pub sent: u64,
    /// Packets that the device did not take.
    pub lost: u64,
    /// Packets that were cut short, or had a wrong checksum.
    pub broken: u64,
    /// Connections now, without the half-open and the remembered ones.
    pub connections: usize,
    /// Connections that come and are not made yet.
    pub half_open: usize,
    /// Closed connections that are remembered.
    pub time_wait: usize,
    /// Half-open connections that a newer one replaced.
    pub half_open_evicted: u64,
    /// New connections that found no room, at their listener or in the network.
    pub refused: u64,
    /// Datagrams that found no room at their socket.
    pub datagrams_lost: u64,
}

impl Stats {
    pub(crate) fn and(self, other: Stats) -> Stats {
        Stats {
            received: self.received + other.received,
            sent: self.sent + other.sent,
            lost: self.lost + other.lost,
            broken: self.broken + other.broken,
            connections: self.connections + other.connections,
            half_open: self.half_open + other.half_open,
            time_wait: self.time_wait + other.time_wait,
            half_open_evicted: self.half_open_evicted + other.half_open_evicted,
            refused: self.refused + other.refused,
            datagrams_lost: self.datagrams_lost + other.datagrams_lost,
        }
    }
}
