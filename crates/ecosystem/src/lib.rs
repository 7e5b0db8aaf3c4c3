//! Libraries of Rust's ecosystem on Dapple, without a tokio runtime, unless a row says so. Each row
//! is a program of at most 40 lines that checks its own result; `tests/` runs them all, and tests
//! more of each library than an example can show.
//!
//! | library | example | what joins it to Dapple |
//! |---|---|---|
//! | axum, over hyper, as server and client | `axum_router` | feature `hyper`: streams, `hyper_rt::Timer` |
//! | axum, behind Dapple's own middleware | `axum_middleware` | `dapple::stage::middleware` |
//! | axum, with a stage behind a route | `axum_stage` | `dapple::stage::Stage`, and a reply for its refusals |
//! | tonic, its health service, on one port with axum | `tonic_health` | feature `hyper`: streams, `hyper_rt::Executor` |
//! | axum, by Dapple's own server | `serve_axum` | feature `serve`: `dapple::serve(listener, router)` |
//! | tonic, the same | `serve_tonic` | feature `serve`: `dapple::serve(listener, service)` |
//! | `tokio::sync` | `tokio_sync` | nothing |
//! | tower's `ConcurrencyLimit` and `LoadShed` | `tower_limits` | nothing |
//! | rustls, as server and client | `rustls_both_ways` | feature `tls`: `dapple::tls` |
//! | hickory, with a resolver of its own | `hickory_lookup` | feature `dns`: `hickory_rt::Provider` |
//! | reqwest | `reqwest_client` | `async_compat::Compat`, which brings a tokio runtime of one thread |
//!
//! `tests/it/whole_runtime.rs` has the libraries that need tokio's runtime, in a runtime of
//! Dapple's that was built with `dapple::builder().tokio()`: `tokio::{net, spawn, time}`, reqwest,
//! tonic's `Channel`, axum's `ws`, tokio-tungstenite, redis.
//!
//! ```text
//! cargo run -p ecosystem --example axum_router
//! ```

#![forbid(unsafe_code)]
