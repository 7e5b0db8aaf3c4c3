//! Broadcast: one source, all members of a group.
//!
//! ```text
//!                      ╭═► Receiver ─► any service        member "a"
//!   source ─► Broadcast╪═► Receiver ─► any service        member "b"
//!                      ╰═► Receiver ─► any service        member "c"
//!
//!   sources ─► Sequencer ─► (the same)                    one order for all
//! ```
//!
//! Broadcast of Gribble's dissertation (4.2): reliable or not, ordered or not. It consists of one
//! [at-most-once](crate::operators::direct::AtMostOnce) link to each member.
//!
//! # Guarantees
//!
//! | | unordered | per sender | [`Sequencer`] |
//! |---|---|---|---|
//! | members see messages | in any order | messages of one sender in the order of its calls | all in the same order, numbered |
//! | **best effort**: each is sent once | some may miss a message | missing ones are skipped; late ones are dropped | as per sender |
//! | **reliable**: sent until all in the view have answered | all have it, or are out of the view | as unordered, without gaps | as per sender |
//! | twice at a member | never | never | never |
//!
//! | failed part | effect |
//! |---|---|
//! | a member | reliable: the sender tries until the attempts are used up, then removes it from the view and reports it. Best effort: each message reports it |
//! | a member that comes back | it joins again with a new receiver, and gets later messages |
//! | the sender, or the sequencer | messages in flight may be at some members only, at most once each. If all or none must have them, use two-phase commit (`dapple_commit`) |

mod group;
mod sequencer;

pub use self::group::{Broadcast, Delivered, Member, Ordering, Settings};
pub use self::sequencer::{Numbered, Sequenced, Sequencer};
