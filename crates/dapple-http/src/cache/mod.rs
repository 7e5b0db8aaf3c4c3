//! The rules of a shared cache: which responses it may keep, how long, and for which requests (RFC
//! 9111). No storage and no clock: times are milliseconds since 1970.
//!
//! ```text
//!   Control     what `cache-control` says            5.2
//!   Policy      may it be kept, is it still fresh     3, 4.2, 5.2
//!   Selection   for which requests it stands          4.1
//!   merged      what a 304 changes in it              3.2, 4.3.4
//! ```

mod control;
mod merge;
mod policy;
mod selection;

pub use control::Control;
pub use merge::{is_about, merged};
pub use policy::{Policy, Reception, Verdict};
pub use selection::Selection;
