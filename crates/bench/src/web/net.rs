//! `bench net`: the web server over TCP of its own, compared with the kernel's.

use super::experiment::{Case, Figures, Plan, Workload};
use super::queues;
use super::server::Weather;
use super::site::SiteKind;
use super::workloads::{Hello, Small, Specweb, columns};
use crate::experiment::{Column, Peer, Trial};
use anyhow::Result;

/// One tiny file over kept connections.
pub(super) struct NetHello;

impl Workload for NetHello {
    const NAME: &'static str = "net-hello";
    const TITLE: &'static str = "one file of 13 bytes over kept connections, through an interface";
    const PEERS: &'static [Peer] = PEERS;
    const PLAN: Plan = Hello::PLAN;
    const CONNECTIONS: &'static [usize] = &[64];

    fn columns() -> Vec<Column<Figures>> {
        columns()
    }
}

/// The papers' small files.
pub(super) struct NetSmall;

impl Workload for NetSmall {
    const NAME: &'static str = "net-small";
    const TITLE: &'static str = "700 files of 4 KB, five requests a connection, through an interface";
    const PEERS: &'static [Peer] = PEERS;
    const PLAN: Plan = Small::PLAN;
    const CONNECTIONS: &'static [usize] = &[800];

    fn columns() -> Vec<Column<Figures>> {
        columns()
    }
}

/// A large file, in memory.
pub(super) struct NetBulk;

impl Workload for NetBulk {
    const NAME: &'static str = "net-bulk";
    const TITLE: &'static str = "one file of 200 MB, in memory, through an interface";
    const PEERS: &'static [Peer] = PEERS;
    const PLAN: Plan = BULK;
    const CONNECTIONS: &'static [usize] = &[1, 8];

    fn columns() -> Vec<Column<Figures>> {
        bulk_columns()
    }
}

/// Files of many sizes, where one packet of a hundred is lost.
pub(super) struct NetLoss;

impl Workload for NetLoss {
    const NAME: &'static str = "net-loss";
    const TITLE: &'static str = "720 files, as in SPECweb99, while one packet of a hundred is lost in each direction";
    const PEERS: &'static [Peer] = PEERS;
    const PLAN: Plan = Specweb::PLAN;
    const WEATHER: Weather = Weather { loss_percent: 1, ..Weather::FAIR };
    const CONNECTIONS: &'static [usize] = &[4, 64];

    fn columns() -> Vec<Column<Figures>> {
        columns()
    }
}

/// Many clients.
pub(super) struct NetClients;

impl Workload for NetClients {
    const NAME: &'static str = "net-clients";
    const TITLE: &'static str = "one file of 13 bytes over 10,000 kept connections, through an interface";
    const PEERS: &'static [Peer] = PEERS;
    const PLAN: Plan = Hello::PLAN;
    const CONNECTIONS: &'static [usize] = &[10_000];

    fn columns() -> Vec<Column<Figures>> {
        columns()
    }
}

/// Interfaces on workers, without a kernel between.
pub(super) struct NetQueues;

impl Workload for NetQueues {
    const NAME: &'static str = "net-queues";
    const TITLE: &'static str = "answers of 4 KB over kept connections; an interface in memory for each worker, with clients on the same worker";
    const PEERS: &'static [Peer] = &[Peer::DappleOwnTcp];
    const PLAN: Plan = Hello::PLAN;
    const CONNECTIONS: &'static [usize] = &[16];

    fn columns() -> Vec<Column<Figures>> {
        columns().into_iter().filter(|column| ["requests/s", "MB/s", "CPU us"].contains(&column.head)).collect()
    }

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        queues::measure(trial)
    }
}

/// Good clients beside a flood.
pub(super) struct NetFlood;

impl Workload for NetFlood {
    const NAME: &'static str = "net-flood";
    const TITLE: &'static str =
        "700 files of 4 KB, five requests a connection, beside 100,000 SYN a second from addresses that never answer";
    const PEERS: &'static [Peer] = PEERS;
    const PLAN: Plan = Small::PLAN;
    const WEATHER: Weather = Weather { flood_per_s: 100_000, ..Weather::FAIR };
    const CONNECTIONS: &'static [usize] = &[64];

    fn columns() -> Vec<Column<Figures>> {
        columns()
    }
}

fn bulk_columns() -> Vec<Column<Figures>> {
    vec![
        Column { head: "MB/s", figure: |of| of.mb_per_s, decimals: 0 },
        Column { head: "CPU ms/100 MB", figure: |of| of.cpu_ms_per_100_mb, decimals: 1 },
        Column { head: "p50 ms", figure: |of| of.p50_ms, decimals: 0 },
        Column { head: "max ms", figure: |of| of.max_ms, decimals: 0 },
        Column { head: "Jain", figure: |of| of.jain, decimals: 3 },
        Column { head: "errors", figure: |of| of.errors as f64, decimals: 0 },
        Column { head: "MB", figure: |of| of.resident_mb, decimals: 0 },
    ]
}

const BULK: Plan = Plan { cache_mb: 8 << 10, ..Plan::of(SiteKind::Large) };

const PEERS: &[Peer] = &[Peer::DappleOwnTcp, Peer::DappleOwnVeth, Peer::DappleVeth];
