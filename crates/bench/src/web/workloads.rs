//! The workloads.

use super::experiment::{Case, Figures, Plan, WebRow, Workload};
use super::papers;
use super::site::SiteKind;
use crate::experiment::{BesidePaper, Column, Peer, Plot, workers_text};
use crate::machine::About;

/// 700 files of 4 KB: thesis, section 5.1.
pub(super) struct Small;

impl Workload for Small {
    const NAME: &'static str = "small";
    const TITLE: &'static str = "small: 700 files of 4 KB, five requests a connection";
    const PEERS: &'static [Peer] = ALL;
    const PLAN: Plan = Plan { requests: 5, ..Plan::of(SiteKind::Small) };
    const CONNECTIONS: &'static [usize] = &[800];

    fn columns() -> Vec<Column<Figures>> {
        columns()
    }

    fn beside_paper(rows: &[WebRow], about: &About) -> BesidePaper {
        papers::small(rows, about)
    }
}

/// 720 files, 100 MB, as SPECweb99 has them: USENIX, section 5.1.
pub(super) struct Specweb;

impl Workload for Specweb {
    const NAME: &'static str = "specweb";
    const TITLE: &'static str = "specweb: 720 files, 100 MB, as in SPECweb99, ten requests a connection";
    const PEERS: &'static [Peer] = ALL;
    const PLAN: Plan = Plan { requests: 10, ..Plan::of(SiteKind::Specweb) };
    const CONNECTIONS: &'static [usize] = &[800];

    fn columns() -> Vec<Column<Figures>> {
        columns()
    }

    fn beside_paper(rows: &[WebRow], about: &About) -> BesidePaper {
        papers::specweb(rows, about)
    }
}

/// One tiny file over kept connections.
pub(super) struct Hello;

impl Workload for Hello {
    const NAME: &'static str = "hello";
    const TITLE: &'static str = "hello: one file of 13 bytes over kept connections";
    const PEERS: &'static [Peer] = ALL;
    const PLAN: Plan = Plan::of(SiteKind::Hello);
    const CONNECTIONS: &'static [usize] = &[64];

    fn columns() -> Vec<Column<Figures>> {
        columns()
    }
}

/// More and more clients: thesis, Figure 5-4, and USENIX, Figure 9.
pub(super) struct Overload;

impl Workload for Overload {
    const NAME: &'static str = "overload";
    const TITLE: &'static str = "overload: 700 files of 4 KB, five requests a connection";
    const PEERS: &'static [Peer] = ALL;
    const PLAN: Plan = Plan { requests: 5, ..Plan::of(SiteKind::Small) };
    const CONNECTIONS: &'static [usize] = &[100, 400, 1_000, 2_000, 4_000, 8_000];

    fn columns() -> Vec<Column<Figures>> {
        columns()
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        vec![
            plot("rate", "thousand requests a second", false, |of| of.rate_per_s / 1e3),
            plot("p99", "99th percentile of latency, ms", true, |of| of.p99_ms),
        ]
    }

    fn beside_paper(rows: &[WebRow], _: &About) -> BesidePaper {
        papers::overload(rows)
    }
}

/// Files that the kernel has forgotten: PLDI, Figure 19.
pub(super) struct Cold;

impl Workload for Cold {
    const NAME: &'static str = "cold";
    const TITLE: &'static str = "cold: files of 16 KB, forgotten by the kernel before each run, caches of 100 MB";
    const PEERS: &'static [Peer] =
        &[Peer::Dapple, Peer::DappleSerial, Peer::Nginx, Peer::NginxAcceptOne, Peer::Apache, Peer::Hyper, Peer::Go];
    const PLAN: Plan = Plan { cache_mb: 100, cold: true, limited: true, ..Plan::of(SiteKind::Many) };
    const CONNECTIONS: &'static [usize] = &[16, 128, 1_024];

    fn columns() -> Vec<Column<Figures>> {
        columns()
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        vec![
            plot("throughput", "MB a second", false, |of| of.mb_per_s),
            plot("p99", "99th percentile of latency, ms", true, |of| of.p99_ms),
        ]
    }

    fn beside_paper(rows: &[WebRow], _: &About) -> BesidePaper {
        papers::cold(rows)
    }
}

/// One large file that is in no cache, requested by several clients at once.
pub(super) struct Misses;

impl Workload for Misses {
    const NAME: &'static str = "misses";
    const TITLE: &'static str =
        "misses: one file of 200 MB that is in no cache, asked for by all clients at the same time";
    const PEERS: &'static [Peer] =
        &[Peer::Dapple, Peer::DappleSerial, Peer::Nginx, Peer::NginxAcceptOne, Peer::Apache, Peer::Hyper, Peer::Go];
    const PLAN: Plan = Plan { cold: true, ..Plan::of(SiteKind::Large) };
    const CONNECTIONS: &'static [usize] = &[8];

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "MB/s", figure: |of| of.mb_per_s, decimals: 0 },
            Column { head: "CPU ms/100 MB", figure: |of| of.cpu_ms_per_100_mb, decimals: 1 },
            Column { head: "most MB", figure: |of| of.resident_max_mb, decimals: 0 },
            Column { head: "MB at the end", figure: |of| of.resident_mb, decimals: 0 },
            Column { head: "p50 ms", figure: |of| of.p50_ms, decimals: 0 },
            Column { head: "max ms", figure: |of| of.max_ms, decimals: 0 },
            Column { head: "errors", figure: |of| of.errors as f64, decimals: 0 },
        ]
    }
}

/// Small replies beside clients that read nothing.
pub(super) struct Stalled;

impl Workload for Stalled {
    const NAME: &'static str = "stalled";
    const TITLE: &'static str = "stalled: 400 requests a second for 13 bytes, a connection each, beside clients that have asked for 200 MB and read nothing";
    const PEERS: &'static [Peer] =
        &[Peer::Dapple, Peer::DappleSerial, Peer::Nginx, Peer::NginxAcceptOne, Peer::Apache, Peer::Hyper, Peer::Go];
    const PLAN: Plan = Plan { requests: 1, stalled: true, ..Plan::of(SiteKind::HelloAndLarge) };
    const CONNECTIONS: &'static [usize] = &[500, 5_000];

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "requests/s", figure: |of| of.rate_per_s, decimals: 0 },
            Column { head: "CPU us", figure: |of| of.cpu_us_per_request, decimals: 0 },
            Column { head: "p50 ms", figure: |of| of.p50_ms, decimals: 2 },
            Column { head: "p99 ms", figure: |of| of.p99_ms, decimals: 2 },
            Column { head: "max ms", figure: |of| of.max_ms, decimals: 2 },
            Column { head: "errors", figure: |of| of.errors as f64, decimals: 0 },
            Column { head: "MB", figure: |of| of.resident_mb, decimals: 0 },
        ]
    }
}

/// A large file, encrypted.
pub(super) struct Tls;

impl Workload for Tls {
    const NAME: &'static str = "tls";
    const TITLE: &'static str = "tls: one file of 200 MB by TLS 1.3, AES-128-GCM";
    const PEERS: &'static [Peer] = ENCRYPTING;
    const PLAN: Plan = Plan { tls: true, ..Plan::of(SiteKind::Large) };
    const CONNECTIONS: &'static [usize] = &[8];

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "MB/s", figure: |of| of.mb_per_s, decimals: 0 },
            Column { head: "CPU ms/100 MB", figure: |of| of.cpu_ms_per_100_mb, decimals: 1 },
            Column { head: "p50 ms", figure: |of| of.p50_ms, decimals: 0 },
            Column { head: "p99 ms", figure: |of| of.p99_ms, decimals: 0 },
            Column { head: "Jain", figure: |of| of.jain, decimals: 3 },
            Column { head: "errors", figure: |of| of.errors as f64, decimals: 0 },
            Column { head: "MB", figure: |of| of.resident_mb, decimals: 0 },
        ]
    }
}

/// The experiment of libasync-mp's encrypted file server: each client reads a file of 200 MB, from memory, encrypted.
pub(super) struct EncryptedFiles;

impl Workload for EncryptedFiles {
    const NAME: &'static str = "files";
    const TITLE: &'static str = "files: one file of 200 MB by TLS 1.3, from a file service";
    const PEERS: &'static [Peer] = &[Peer::DappleFiles, Peer::Rclone, Peer::Nginx, Peer::Hyper];
    const PLAN: Plan = Tls::PLAN;
    const CONNECTIONS: &'static [usize] = &[1, 2, 4, 8];

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "MB/s", figure: |of| of.mb_per_s, decimals: 0 },
            Column { head: "CPU s/GB", figure: |of| of.cpu_ms_per_100_mb / 100.0, decimals: 3 },
            Column { head: "Jain", figure: |of| of.jain, decimals: 3 },
            Column { head: "errors", figure: |of| of.errors as f64, decimals: 0 },
            Column { head: "MB", figure: |of| of.resident_mb, decimals: 0 },
        ]
    }
}

/// TLS connections with one small request each.
pub(super) struct Handshakes;

impl Workload for Handshakes {
    const NAME: &'static str = "handshakes";
    const TITLE: &'static str =
        "handshakes: a full handshake of TLS 1.3 (P-256, X25519) and 13 bytes, a connection each";
    const PEERS: &'static [Peer] = ENCRYPTING;
    const PLAN: Plan = Plan { requests: 1, tls: true, ..Plan::of(SiteKind::Hello) };
    const CONNECTIONS: &'static [usize] = &[64];

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "handshakes/s", figure: |of| of.connects_per_s, decimals: 0 },
            Column { head: "CPU us", figure: |of| of.cpu_us_per_request, decimals: 1 },
            Column { head: "p50 ms", figure: |of| of.p50_ms, decimals: 2 },
            Column { head: "p99 ms", figure: |of| of.p99_ms, decimals: 2 },
            Column { head: "Jain", figure: |of| of.jain, decimals: 3 },
            Column { head: "errors", figure: |of| of.errors as f64, decimals: 0 },
            Column { head: "load CPU us", figure: |of| of.load_cpu_us, decimals: 1 },
        ]
    }
}

const ENCRYPTING: &[Peer] = &[
    Peer::Dapple,
    Peer::DappleSerial,
    Peer::DappleCopies,
    Peer::Nginx,
    Peer::NginxAcceptOne,
    Peer::Apache,
    Peer::Hyper,
    Peer::Go,
];

const ALL: &[Peer] = &[
    Peer::Dapple,
    Peer::DappleSerial,
    Peer::DappleCopies,
    Peer::DappleSmall,
    Peer::DappleOwnScheduler,
    Peer::Nginx,
    Peer::NginxAcceptOne,
    Peer::Apache,
    Peer::Hyper,
    Peer::Go,
    Peer::Epoll,
];

pub(super) fn columns() -> Vec<Column<Figures>> {
    vec![
        Column { head: "requests/s", figure: |of| of.rate_per_s, decimals: 0 },
        Column { head: "MB/s", figure: |of| of.mb_per_s, decimals: 1 },
        Column { head: "CPU us", figure: |of| of.cpu_us_per_request, decimals: 1 },
        Column { head: "p50 ms", figure: |of| of.p50_ms, decimals: 2 },
        Column { head: "p99 ms", figure: |of| of.p99_ms, decimals: 2 },
        Column { head: "p99.9 ms", figure: |of| of.p999_ms, decimals: 2 },
        Column { head: "connect p99", figure: |of| of.connect_p99_ms.unwrap_or(f64::NAN), decimals: 2 },
        Column { head: "Jain", figure: |of| of.jain, decimals: 3 },
        Column { head: "starved", figure: |of| of.starved, decimals: 0 },
        Column { head: "waits ms", figure: |of| of.waiting_max_ms, decimals: 0 },
        Column { head: "errors", figure: |of| of.errors as f64, decimals: 0 },
        Column { head: "MB", figure: |of| of.resident_mb, decimals: 0 },
        Column { head: "load CPU us", figure: |of| of.load_cpu_us, decimals: 1 },
    ]
}

fn plot(stem: &'static str, y_title: &'static str, y_log: bool, figure: fn(&Figures) -> f64) -> Plot<Case, Figures> {
    let part = |case: &Case| {
        let limit = case.memory_mb.map(|limit| format!(" {limit} MB"));
        format!("{}{}", workers_text(case.workers), limit.unwrap_or_default())
    };
    Plot { stem, y_title, y_log, figure, x_title: "clients", x: |case| case.connections, part }
}
