//! The public behavior of the scheduler, one module per invariant (C1 to C10) or part.

mod bombs;
mod borrow;
mod budget;
mod c10_identity;
mod c1_serial;
mod c2_order;
mod c3_default;
mod c4_several;
mod c5_read;
mod c6_idle;
mod c7_live;
mod c8_panic;
mod c9_blocking;
mod callbacks;
mod clones;
#[cfg(not(miri))]
mod compile_fail;
mod dump;
mod enter;
mod express;
mod faults;
mod forget;
mod fork;
mod futures;
mod light;
mod named;
#[path = "../nested/mod.rs"]
mod nested;
#[path = "../nested/bomb.rs"]
mod nested_bomb;
mod oracle;
mod outside;
mod pinned;
mod policy;
mod preempted;
mod priority;
#[cfg(not(miri))]
mod quota;
mod random_nesting;
#[cfg(not(miri))]
mod rest;
mod settings;
mod shutdown;
mod state;
mod stats;
mod stepped;
mod support;
mod tasks;
mod thread_context;
mod trace;
mod unwinding;
