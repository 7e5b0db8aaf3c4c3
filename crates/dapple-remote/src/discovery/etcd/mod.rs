//! Hosts that have registered themselves in etcd, by its JSON gateway (v3), which every etcd since 3.4 has on its client port.
//!
//! | part | does |
//! |---|---|
//! | `place` | which etcd, and which keys |
//! | `client` | questions and streams, over HTTP/1.1 |
//! | `follow` | who is there, and who comes and goes |
//! | `lease` | being there, as long as the host lives |

mod client;
mod follow;
mod lease;
mod place;

pub(super) use follow::follow;
pub use lease::Registration;
pub(crate) use place::EtcdFolder;
