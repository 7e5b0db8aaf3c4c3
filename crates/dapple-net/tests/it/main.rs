//! Programs on networks in user space, joined by links in memory.

mod datagrams;
mod kernel;
mod limits;
mod packet;
mod properties;
mod queues;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod streams;
mod tun;
mod world;
