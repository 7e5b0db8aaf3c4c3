//! The real `dapple` binary, asked by plain sockets: no HTTP library stands between a test and the bytes.

mod cache;
mod config;
mod errors;
mod files;
mod http;
mod load;
mod paths;
mod shutdown;
mod status;
mod support;
