//! Public behavior of `dapple-stage`.

#[path = "../../../dapple-sched/tests/it/bombs.rs"]
mod bombs;
#[path = "../../../dapple-sched/tests/it/clones.rs"]
mod clones;
mod deadline;
mod faults;
#[path = "../../../dapple-sched/tests/it/forget.rs"]
mod forget;
mod futures;
mod lines;
mod once;
mod operators;
mod stage;
