//! Tests of the store through its public interface.

mod bounded;
#[cfg(feature = "etcd")]
#[path = "../../../dapple-etcd/tests/it/cluster.rs"]
#[expect(dead_code, reason = "the client's tests use the rest")]
mod cluster;
mod compile_fail;
mod copies;
mod disk;
mod durability;
mod faults;
mod locks;
mod logs;
mod old_values;
mod operations;
#[cfg(feature = "etcd")]
mod real_etcd;
#[cfg(feature = "etcd")]
mod relay;
mod support;
mod tables;
mod transactions;
mod urls;
mod watches;
