//! The real `dapple` binary, tested over plain sockets, without an HTTP library between a test and
//! the bytes.

mod access_log;
mod cache;
mod cluster;
mod codings;
mod conditions;
mod config;
mod drain;
mod errors;
#[cfg(feature = "files")]
mod file_certificates;
#[cfg(feature = "files")]
mod file_checks;
#[cfg(feature = "files")]
mod file_directories;
#[cfg(feature = "files")]
mod file_locks;
#[cfg(feature = "files")]
mod file_restarts;
#[cfg(feature = "files")]
mod file_service;
mod files;
mod framing;
mod hostile;
mod http;
mod http2;
#[cfg(feature = "http3")]
mod http3;
mod insight;
mod limits;
mod listing;
mod load;
mod memory;
mod metrics;
#[cfg(feature = "net")]
mod own_network;
mod paths;
mod properties;
mod proxy;
mod ranges;
mod reload;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod rfc;
mod room;
mod rules;
mod shutdown;
mod sign;
mod spans;
mod stage_host;
mod status;
mod store;
mod support;
mod timeouts;
mod tls;
mod upgrade;
