//! TLS for Dapple's streams, by rustls.

#![forbid(unsafe_code)]
