//! Direct composition: one source, one destination.
//!
//! ```text
//!   source ──► BestEffort ─────► any service        lost when there is no room
//!   source ──► FlowControlled ─► any service        waits when there is no room
//!   source ──► AtMostOnce ═════► Receiver ─► any service     sent again until answered, run at most once
//! ```
//!
//! The three variants of direct composition in Gribble's dissertation (4.2). Each is a
//! [`Service`](tower_service::Service) around another, so that they combine with one another and
//! with the middleware of this crate.

mod at_most_once;
mod best_effort;
mod flow;
mod inbox;
mod message;
mod receiver;

pub use self::at_most_once::{AtMostOnce, Retransmit};
pub(crate) use self::at_most_once::{Link, Sender};
pub use self::best_effort::{BestEffort, Sending};
pub use self::flow::{FlowControlled, Flowing, Window};
pub use self::message::{Delivery, DeliveryError, Order, Receipt, Session, Settled};
pub use self::receiver::Receiver;
