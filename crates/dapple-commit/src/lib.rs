//! Two-phase commit: a message is delivered to all participants or to none.
//!
//! ```text
//!               Prepare             votes (each on disk)        Decision (on disk)
//!   caller ──► coordinator ══════► participants ══════► coordinator ══════► participants ──► resources
//!                                        ╲    ask one another when the coordinator is gone   ╱
//!                                         ╰───────────────────────────────────────────────────╯
//! ```
//!
//! It is the composition operator of Gribble's dissertation that keeps replicas identical (4.2),
//! with its storage's rule for a dead coordinator (7.2.1): the participants ask each other for the
//! outcome. Unlike there, promises and decisions are in a durable log, so no process must stay
//! alive.
//!
//! # What is promised
//!
//! Packets may be lost, duplicated, delayed and reordered; processes may die at any point and
//! return with their logs.
//!
//! | case | result |
//! |---|---|
//! | always | no participant commits what another has aborted, and no caller gets another result |
//! | a participant votes no, or does not answer in time | none commits |
//! | a participant dies before its vote | none commits |
//! | a participant dies after a yes | it learns the outcome after its return, and commits then if the others did |
//! | the coordinator dies before it has decided | all abort: after its return, or as soon as they find a participant that had not voted; that one then aborts it for all |
//! | the coordinator dies after it has decided | a participant that knows the decision tells the others when they ask. Only if **all** live participants have voted yes and none knows the decision, they wait for the coordinator or for a participant that knows it: any action on their own could be wrong |
//! | a disk is full | a participant votes no, a coordinator aborts, with the error of the disk as the reason. Earlier promises can be finished: their room in the log is reserved |
//! | a log cannot be written at all | the node stops and reports it ([`Participant::error`]), as if its process had died |
//! | a log is damaged in its synced part | the node refuses to start, because a promise might be forgotten |
//!
//! A message goes to each participant twice, and each answers twice. With `n` participants there
//! are `2n + 1` waits for a disk between the call and the last commit; two of them, one after the
//! other, delay the caller. Concurrent transactions share them. A transaction costs some hundred
//! bytes and its message until all have it.
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
//!     // Here all are in one process; a remote stage that takes packets works as well.
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
//! The protocol is two state machines without input and output. `simulation.rs` runs them under
//! random faults with many transactions, and explores every order of events with one.
//! `tests/processes/commit_kills.rs` kills processes 200 times.
//!
//! Rejected: three-phase commit. It never blocks if no node is cut off, and gives wrong results if
//! one is.
//!
//! Rejected: a participant that answers "aborted" from memory about a transaction that it has never
//! seen. After a crash it could vote yes to the same transaction, with a late `Prepare`.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod bytes;
mod coordinator;
mod courier;
mod files;
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
mod task;

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
