//! Transactions from the user's side.

#![cfg(not(any(dapple_loom, dapple_shuttle)))]

#[macro_use]
#[path = "../../../dapple-sched/tests/it/lets_others_go.rs"]
mod lets_others_go;

mod bank;
#[path = "../../../dapple-sched/tests/it/bombs.rs"]
mod bombs;
mod budget;
mod faults;
#[path = "../../../dapple-sched/tests/it/forget.rs"]
mod forget;
mod futures;
mod mistakes;
mod nesting;
mod support;
mod waiting;
