//! Random programs of what meets inside of closures: holds in holds, futures that are polled, moved, dropped and
//! forgotten wherever an agent stands, and foreign code that panics. `it` runs them on real threads, `shuttle` in models, and
//! `bench soak scheduler` for hours.
//!
//! [`program`] declares what they do, [`world`] does it, [`history`] says what was wrong with it: a state that is written
//! is used once at a time, also on one thread; a color that is held for writing has one agent in it (C1); what a `try_`
//! answers inside of a closure follows from what is open there; what nothing holds or waits for can be had (C7).

#![allow(dead_code, unused_imports, reason = "each of the three uses what it needs")]

mod history;
mod program;
mod world;

pub(crate) use program::{BOMBS, Op, Program};
pub(crate) use world::{Env, World, explode};
