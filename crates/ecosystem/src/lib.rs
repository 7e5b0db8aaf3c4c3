//! Libraries of Rust's ecosystem on Dapple.

#![forbid(unsafe_code)]
