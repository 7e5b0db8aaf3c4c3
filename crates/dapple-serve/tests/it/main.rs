//! Servers on real sockets, with clients who behave and clients who do not.

mod admission;
mod basics;
mod bodies;
mod bounds;
mod end;
mod first;
mod hostile;
mod room;
mod site;
mod slow;
mod support;
