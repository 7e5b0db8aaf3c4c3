//! Random programs of nested closures: holds in holds, futures that are polled, moved, dropped and
//! forgotten wherever an agent is, and foreign code that panics. `it` runs them on real threads,
//! `shuttle` in models, and `bench soak scheduler` for hours.
//!
//! [`program`] declares their steps, [`world`] runs them, [`history`] checks them: a written state
//! has one user at a time, even on one thread; a color that is held for writing has one agent in it
//! (C1); the result of a `try_` inside of a closure follows from the open closures; a state that is
//! neither held nor waited for is free (C7).

#![allow(dead_code, unused_imports, reason = "each of the three uses what it needs")]

mod history;
mod program;
mod world;

pub(crate) use program::{BOMBS, Op, Program};
pub(crate) use world::{Env, World, explode};
