//! The clients, which differ in number of requests, address and importance.

use std::net::Ipv4Addr;

/// Clients of one kind.
#[derive(PartialEq, Debug)]
pub(super) struct Clients {
    /// Their name in tables.
    pub(super) name: &'static str,
    /// Their load, as a multiple of the server's capacity.
    pub(super) times: f64,
    /// Their address; `None` leaves it to `--sources`.
    pub(super) from: Option<Ipv4Addr>,
    /// They keep at least this many connections, and use all of them in turn. Others take the most
    /// recently used one.
    pub(super) connections_min: usize,
    /// The requested path.
    pub(super) path: &'static str,
    /// Further lines of the heads of their requests.
    pub(super) head: &'static str,
}

const ANY: Clients = Clients { name: "all", times: 1.0, from: None, connections_min: 0, path: "/", head: "" };

/// A load with requests of one kind.
pub(super) static ALIKE: &[Clients] = &[ANY];

/// One address requests five times the server's capacity, on a thousand connections; another one
/// three tenths of it.
pub(super) static FLOOD: &[Clients] = &[
    Clients { name: "flood", times: 5.0, from: Some(Ipv4Addr::LOCALHOST), connections_min: 1_000, ..ANY },
    Clients { name: "other", times: 0.3, from: Some(Ipv4Addr::new(127, 0, 0, 2)), ..ANY },
];

/// Five times the server's capacity; health checks and paid requests are half of the capacity.
pub(super) static CLASSES: &[Clients] = &[
    Clients { name: "health", times: 0.05, path: "/healthz", ..ANY },
    Clients { name: "high", times: 0.45, head: "x-class: high\r\n", ..ANY },
    Clients { name: "normal", times: 1.5, ..ANY },
    Clients { name: "low", times: 3.0, head: "x-class: low\r\n", ..ANY },
];

/// The load of all of them together.
pub(super) fn times_of(clients: &[Clients]) -> f64 {
    clients.iter().map(|clients| clients.times).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_what_titles_say() {
        assert_eq!((times_of(ALIKE), times_of(CLASSES)), (1.0, 5.0));
        assert!((times_of(FLOOD) - 5.3).abs() < 1e-9);
    }
}
