//! Servers on real sockets, with well-behaved and hostile clients.

mod admission;
mod basics;
mod bodies;
#[path = "../../../dapple-sched/tests/it/bombs.rs"]
mod bombs;
mod bounds;
mod elsewhere;
mod end;
mod faults;
mod first;
#[path = "../../../dapple-sched/tests/it/forget.rs"]
mod forget;
mod hostile;
mod log;
mod room;
mod site;
mod slow;
mod support;
mod turns;
