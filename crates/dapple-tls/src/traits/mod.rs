//! The I/O traits of other crates, each family with a feature of its name, for streams and for
//! references to them.

#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
mod hyper;
#[cfg(feature = "tokio")]
mod tokio;
