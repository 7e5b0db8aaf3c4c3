//! The peers.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A system that runs an experiment. Not all take part in all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Peer {
    /// Dapple, by tasks
    Dapple,
    /// Dapple, by tasks that share two colors (memory)
    DappleColors,
    /// Dapple, by tasks in a runtime with tokio's context; their timers are tokio's (memory, timers)
    DappleTokioContext,
    /// Dapple, by callbacks (spectrum)
    DappleEvents,
    /// Dapple, by a pool of tasks behind a queue (spectrum)
    DappleHybrid,
    /// `dapple::stm`, in plain threads
    DappleThreads,
    /// `dapple::when` over the two accounts' colors, in tasks of Dapple, one per worker
    DappleWhen,
    /// Dapple with everything in one color (web)
    DappleSerial,
    /// As many processes of Dapple as workers, with one worker each and a port of their own (web)
    DappleCopies,
    /// The example `small_web_server` (web)
    DappleSmall,
    /// The same on its own scheduler (web)
    DappleOwnScheduler,
    /// `dapple files`, over WebDAV (web)
    DappleFiles,
    /// Dapple on TCP of its own, over a TUN interface (net)
    DappleOwnTcp,
    /// Dapple on TCP of its own, by a packet socket on a veth interface (net)
    DappleOwnVeth,
    /// Dapple on the kernel's TCP, in a network namespace behind a veth interface (net)
    DappleVeth,
    /// `rclone serve webdav`; must be installed (web)
    Rclone,
    /// nginx with `multi_accept on`: a worker accepts all waiting connections; must be installed
    Nginx,
    /// nginx with `multi_accept off`, its default: one connection for each poll of the kernel (web)
    NginxAcceptOne,
    /// Apache with the event module; must be installed
    Apache,
    /// hyper on tokio, with files in memory (web)
    Hyper,
    /// hyper on tokio with tower's concurrency limit of 20 and load shedding, handlers in line
    /// (overload)
    HyperTower20,
    /// hyper on tokio, handlers in a pool of a thread per worker, behind tower's limit of 10 and
    /// load shedding (overload)
    HyperPool10,
    /// The same with a limit of 20 (overload)
    HyperPool20,
    /// tokio
    Tokio,
    /// smol
    Smol,
    /// The crate `async-task` with a minimal executor: a queue per thread, no stealing
    AsyncTask,
    /// Go; needs `go`
    Go,
    /// Go with a limit of 10 that sheds (overload); needs `go`
    GoLimit10,
    /// A kernel thread for each
    Pthreads,
    /// A bare event loop per worker, on epoll: the floor
    Epoll,
    /// The crate `compio`: a runtime on io_uring, one per worker
    Compio,
    /// `fio`; must be installed
    Fio,
    /// The crate `fast-stm`, in plain threads
    FastStm,
    /// The crate `async-stm`, in tasks of tokio, one per worker
    AsyncStm,
    /// `dapple sign`: a thread for each task (signserver)
    Threaded,
    /// `dapple sign`: all of it behind one queue (signserver)
    Wrapped,
    /// `dapple sign`: three stages (signserver)
    Pipelined,
    /// `dapple sign`: replicas of the three stages (signserver)
    Replicated,
    /// `std::sync::Mutex`, taken in order, in plain threads
    Mutex,
}

impl Peer {
    /// Whether it is a part of the Go program.
    pub(crate) fn is_go(self) -> bool {
        matches!(self, Peer::Go | Peer::GoLimit10)
    }

    /// Its place in the palette of the plots, always the same, so that plots can be compared.
    pub(crate) fn style(self) -> usize {
        match self {
            Peer::Dapple | Peer::DappleFiles | Peer::DappleOwnTcp | Peer::Replicated => 0,
            Peer::DappleColors
            | Peer::DappleThreads
            | Peer::DappleEvents
            | Peer::DappleCopies
            | Peer::DappleOwnVeth => 1,
            Peer::Tokio | Peer::Hyper | Peer::Threaded => 2,
            Peer::DappleWhen | Peer::Smol | Peer::Compio | Peer::Apache | Peer::HyperTower20 | Peer::Wrapped => 3,
            Peer::AsyncTask | Peer::FastStm | Peer::Pthreads | Peer::Nginx | Peer::HyperPool10 | Peer::Pipelined => 4,
            Peer::DappleVeth | Peer::Go | Peer::Rclone => 5,
            Peer::AsyncStm | Peer::DappleHybrid | Peer::DappleSerial | Peer::GoLimit10 => 6,
            Peer::Epoll | Peer::Fio => 7,
            Peer::DappleOwnScheduler | Peer::DappleTokioContext | Peer::NginxAcceptOne => 9,
            Peer::Mutex | Peer::HyperPool20 | Peer::DappleSmall => 8,
        }
    }
}
