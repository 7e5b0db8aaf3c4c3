//! Two-phase commit: a message is delivered to all participants or to none.
//!
//! ```text
//!               Prepare             votes (each on disk)        Decision (on disk)
//!   caller ──► coordinator ══════► participants ══════► coordinator ══════► participants ──► resources
//!                                        ╲    ask one another when the coordinator is gone   ╱
//!                                         ╰───────────────────────────────────────────────────╯
//! ```
//!
//! It is the composition operator of Gribble's dissertation that keeps replicas alike (4.2), with what its storage does when the
//! coordinator dies (7.2.1): those who were asked find out from each other. Other than there, promises and decisions are in a
//! durable log, so that nothing depends on some of the processes staying alive. Aborts are presumed and cost nothing.
//!
//! # What is promised
//!
//! Packets may be lost, doubled, late and out of order; processes may die at any point and come back with their logs.
//!
//! | when | then |
//! |---|---|
//! | always | no participant commits what another has aborted, and no caller is told otherwise |
//! | a participant says no, or does not answer in time | nobody commits |
//! | a participant dies before it has voted | nobody commits |
//! | a participant dies after it has voted yes | it finds out when it is back, and commits then if the others did |
//! | the coordinator dies before it has decided | all abort: when it is back, or as soon as they find one that had not voted, which aborts it for all |
//! | the coordinator dies after it has decided | who knows tells the others when they ask. Only if **all** who are alive have voted yes and none has heard the decision, they wait for the coordinator or for one who knows: whatever they did on their own could be wrong |
//! | a disk is full | a participant votes no, a coordinator aborts, with the error of the disk as the reason. What was promised before can be finished: its room in the log is kept |
//! | a log cannot be written at all | the node stops and says so ([`Participant::error`]); it is as if its process had died |
//! | a log is damaged where it was safe on disk | it is refused at the start, rather than forgetting a promise |
//!
//! A message goes to each participant twice, and each answers twice. With `n` participants `2n + 1` waits for a disk stand
//! between the call and the last of them having committed, of which two follow one another until the caller is told; what
//! comes at the same time shares them. A transaction costs some hundred bytes and its message until all have it.
//!
//! # Example
//!
//! ```
//! use dapple_commit::{Coordinator, NodeId, Participant, Settings, deliver};
//!
//! let folder = std::env::temp_dir().join(format!("two-phase-commit-{}", std::process::id()));
//! std::fs::create_dir_all(&folder)?;
//! let run = |courier| std::thread::spawn(move || dapple_sched::block_on(courier));
//!
//! let (coordinator, courier) = Coordinator::open(NodeId(1), folder.join("coordinator"), Settings::default())?;
//! run(courier);
//! let (tx, delivered) = std::sync::mpsc::channel();
//! let mut participants = Vec::new();
//! for id in [NodeId(2), NodeId(3)] {
//!     let tx = tx.clone();
//!     let resource = deliver(move |_id, message: &[u8]| tx.send((id, message.to_vec())).map_err(|error| error.to_string()));
//!     let (participant, courier) = Participant::open(id, folder.join(id.0.to_string()), Settings::default(), resource)?;
//!     run(courier);
//!     // Here they are in one process; a remote stage that takes packets does as well.
//!     participant.connect(coordinator.id(), coordinator.inlet());
//!     coordinator.connect(id, participant.inlet());
//!     participants.push(participant);
//! }
//! participants[0].connect(NodeId(3), participants[1].inlet());
//! participants[1].connect(NodeId(2), participants[0].inlet());
//!
//! let id = dapple_sched::block_on(coordinator.commit([NodeId(2), NodeId(3)], *b"to both"))?;
//! let mut both = [delivered.recv()?, delivered.recv()?];
//! both.sort();
//! assert_eq!(both, [(NodeId(2), b"to both".to_vec()), (NodeId(3), b"to both".to_vec())]);
//! # let _ = id;
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it is checked
//!
//! The protocol is two state machines that do no input and output. `simulation.rs` runs them under random faults with many
//! transactions, and goes through every order of events with one. `tests/processes/commit_kills.rs` kills processes 200 times.
//!
//! Rejected: three-phase commit. It never waits where nobody is cut off, and is wrong where somebody is.
//!
//! Rejected: a participant that answers "aborted" from memory when it is asked about what it has never seen. After a crash it
//! could vote yes to the same transaction, whose `Prepare` was late.

#![forbid(unsafe_code)]

mod bytes;
mod coordinator;
mod courier;
mod log;
mod machine;
mod message;
mod node;
mod participant;
mod record;
mod resource;
mod service;
#[cfg(test)]
mod simulation;

#[doc(hidden)]
pub use self::coordinator::CoordinatorMachine;
pub use self::coordinator::Refusal;
pub use self::courier::Courier;
#[doc(hidden)]
pub use self::log::{Storage, WriteError};
pub use self::machine::Settings;
#[doc(hidden)]
pub use self::machine::{Machine, Output};
pub use self::message::{Message, NodeId, Outcome, Packet, Position, TransactionId};
#[doc(hidden)]
pub use self::participant::ParticipantMachine;
#[doc(hidden)]
pub use self::record::Record;
pub use self::resource::{Deliver, Resource, deliver};
pub use self::service::{AllOrNone, CommitError, Coordinator, Inlet, Participant};
