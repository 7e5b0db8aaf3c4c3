//! One source, all members of a group.
//!
//! ```text
//!                      ╭═► Receiver ─► any service        member "a"
//!   source ─► Broadcast╪═► Receiver ─► any service        member "b"
//!                      ╰═► Receiver ─► any service        member "c"
//!
//!   sources ─► Sequencer ─► (the same)                    one order for all
//! ```
//!
//! Broadcast of Gribble's dissertation (4.2): reliable or not, ordered or not. It is made of one
//! [at-most-once](crate::operators::direct::AtMostOnce) link to each member.
//!
//! # Guarantees
//!
//! | | unordered | per sender | [`Sequencer`] |
//! |---|---|---|---|
//! | members see messages | in any order | those of one sender in the order in which it called | all in the same order, numbered |
//! | **best effort**: each is sent once | some may miss one | missing ones are skipped; late ones are dropped | the same |
//! | **reliable**: sent until all in the view have answered | all have it, or are out of the view | the same, without gaps | the same |
//! | twice at a member | never | never | never |
//!
//! | who dies | then |
//! |---|---|
//! | a member | reliable: it is sent to until the attempts are used up, then it is removed from the view and reported. Best effort: reported each time |
//! | a member, and it comes back | it joins again, with a receiver that starts anew, and gets what is sent from then on |
//! | the sender, or the sequencer | what it was sending may be at some members and not at others; each has it once at most. Where that must not be, use two-phase commit (`dapple_commit`) |

mod group;
mod sequencer;

pub use self::group::{Broadcast, Delivered, Member, Ordering, Settings};
pub use self::sequencer::{Numbered, Sequenced, Sequencer};
