//! Which color holds a program back, and what more workers or a change would bring.
//!
//! [`Insight`] records the callbacks of a runtime for a while. [`Snapshot`] is what the recording says: the time and the
//! waits of each family of colors, the slowest callbacks, and a verdict in a sentence. [`Recording::predict`] runs the
//! same callbacks again, on other workers and after a change.
//!
//! ```
//! use dapple_insight::Insight;
//! use dapple_sched::{Colored, Runtime};
//!
//! let runtime = Runtime::builder().workers(1).build()?;
//! let insight = Insight::new(runtime.handle()).expect("it has no other observer");
//! let session = insight.begin().expect("nothing else records");
//! let total = Colored::new(0);
//! runtime.block_on(async {
//!     for n in 0..10 {
//!         let total = total.clone();
//!         dapple_sched::spawn(async move { total.with(|total| *total += n).await }).await.unwrap();
//!     }
//! });
//! let snapshot = session.end().snapshot();
//! assert!(snapshot.families.iter().any(|family| family.is_state && family.runs == 10));
//! println!("{snapshot}");
//! # Ok::<(), std::io::Error>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod export;
#[cfg(feature = "page")]
mod page;
mod recorder;
mod recording;
mod replay;
mod report;
mod runs;
mod snapshot;
mod verdict;
mod waterfall;

#[cfg(feature = "page")]
pub use page::{AttachError, Attached, PageError, Watch, attach, attachable, serve, serve_on, watch};
pub use recorder::{AlreadyRecording, Insight, Session};
pub use recording::{LoadError, Recording};
pub use replay::{Change, Prediction};
pub use report::time_text;
pub use snapshot::{Edge, Family, Slow, Snapshot, Waits, Worker};
pub use verdict::Verdict;
pub use waterfall::{Request, Step, Waterfall};
