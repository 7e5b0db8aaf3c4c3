//! Transactions as their users see them.

#![cfg(not(any(dapple_loom, dapple_shuttle)))]

mod bank;
mod futures;
mod mistakes;
mod nesting;
mod support;
mod waiting;
