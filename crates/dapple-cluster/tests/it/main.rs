//! Deciders with a real etcd, if there is one; `cargo xtask etcd` builds it.

mod real_etcd;
