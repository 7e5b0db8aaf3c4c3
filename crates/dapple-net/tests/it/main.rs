//! Programs on networks in user space, joined by links in memory.

mod datagrams;
mod limits;
mod queues;
mod streams;
mod tun;
mod world;
