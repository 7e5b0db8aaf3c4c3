//! Hosts that have registered themselves in etcd; `dapple-etcd` is its client.
//!
//! | part | does |
//! |---|---|
//! | `place` | which etcd, and which keys |
//! | `follow` | the hosts that are there, and their changes |
//! | `registration` | being there, as long as the host lives |

mod follow;
mod place;
mod registration;

pub(super) use follow::follow;
pub(crate) use place::EtcdFolder;
pub use registration::Registration;
