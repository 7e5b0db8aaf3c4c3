//! The names that nearly every program on Dapple uses.
//!
//! ```
//! use dapple::prelude::*;
//!
//! dapple::block_on(async {
//!     let log = Colored::new(Vec::new());
//!     let wrapped: Callback<&str> = log.color().wrap({
//!         let log = log.clone();
//!         // A closure of the state's own color has it at once.
//!         move |line| log.try_with(|log| log.push(line)).expect("its color is held")
//!     });
//!     wrapped.call("posted");
//!     // Same color, so this comes after it.
//!     assert_eq!(log.with(|log| log.len()).await, 1);
//! });
//! ```

pub use crate::task::Group;
pub use crate::time::{sleep, timeout};
#[cfg(feature = "tokio-compat")]
pub use crate::tokio_compat::BuilderExt as _;
pub use crate::{Callback, Color, Colored, Handle, JoinHandle, Priority, Runtime, spawn, when, yield_now};
