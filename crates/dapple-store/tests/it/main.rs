//! Tests of the store through its public interface.

mod bounded;
mod compile_fail;
mod copies;
mod disk;
mod durability;
mod faults;
mod locks;
mod logs;
mod operations;
mod support;
mod tables;
mod transactions;
mod urls;
mod watches;
