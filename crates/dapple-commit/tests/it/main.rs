//! Public behavior of `dapple-commit`.

#[path = "../../../dapple-sched/tests/it/bombs.rs"]
mod bombs;
mod commit;
#[path = "../../../dapple-sched/tests/it/forget.rs"]
mod forget;
