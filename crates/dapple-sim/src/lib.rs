//! Whole clusters of Dapple runtimes in one thread, under every fault, from one seed.
//!
//! A [`Simulation`] has hosts. Each is a whole runtime with workers of its own, and the simulation orders their steps; its time, its random
//! numbers, its network and its blocking pool are the simulation's. The code inside is that which runs on the kernel: the
//! scheduler, [`net`], [`time`], and all that is built on them. When nothing can run, time jumps to what comes next.
//!
//! ```
//! use std::time::Duration;
//! use dapple_sim::{Faults, Simulation, check};
//! use dapple_sim::net::UdpSocket;
//! use dapple_sim::time::{sleep, timeout};
//!
//! check("an answer comes in the end", 20, |sim: &mut Simulation| {
//!     sim.host("echo", || async {
//!         let socket = UdpSocket::bind("0.0.0.0:7").unwrap();
//!         let mut bytes = [0; 64];
//!         while let Ok((len, from)) = socket.recv_from(&mut bytes).await {
//!             socket.send_to(&bytes[..len], from).await.unwrap();
//!         }
//!     });
//!     sim.client("client", || async {
//!         let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
//!         let mut bytes = [0; 64];
//!         loop {
//!             // Not `unwrap`: the network may be down.
//!             let _ = socket.send_to(b"hello", "echo:7").await;
//!             if timeout(Duration::from_secs(1), socket.recv_from(&mut bytes)).await.is_ok() {
//!                 break;
//!             }
//!         }
//!         sleep(Duration::from_secs(60)).await;
//!     });
//!     sim.faults(&Faults::new(Duration::from_secs(10)).crash("echo").cut("client", "echo").freeze("echo"));
//! });
//! ```
//!
//! A panic or an error refuses the rest, and the simulation fails with a sentence that says what to use instead: file descriptors (Unix
//! sockets, pipes, children, signals, links), and of the standard library threads, their `sleep`, sockets, pipes and look-ups of names.
//! `std::time::Instant` is the simulation's clock. Parts that this crate does not see stay real, and show as a seed that does not decide
//! everything: `std::time::SystemTime`, `available_parallelism`, and the order of a `HashMap` with the standard library's keys.

#![forbid(unsafe_code)]

mod disk;
mod machine;
mod network;
mod plan;
mod random;
mod seeds;
mod settings;
mod simulation;
mod timeline;
mod trace;
mod watchdog;
mod world;
mod written;

pub use dapple_io::{fs, net, time};
pub use plan::{DiskFault, Fault, Faults, NameFault, Plan, Ways};
pub use seeds::{check, explain, report, run_drawn, run_plan, run_seed, shrink};
pub use settings::{Network, Settings};
pub use simulation::{Outcome, Simulation};
pub use written::PlanError;

// The program of this page is compiled with the documentation tests; `tests/it/page.rs` runs it.
