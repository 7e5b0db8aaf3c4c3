//! Hosts that have registered themselves in etcd; `dapple-etcd` is its client.
//!
//! | part | does |
//! |---|---|
//! | `place` | which etcd, and which keys |
//! | `follow` | the registered hosts, and their changes |
//! | `registration` | the host's own entry, for as long as it lives |

mod follow;
mod place;
mod registration;

pub(super) use follow::follow;
pub(crate) use place::EtcdFolder;
pub use registration::Registration;
