//! `bench services`: the figures of the programs in `services/`.

mod search;

pub(crate) use search::{Args, run};
