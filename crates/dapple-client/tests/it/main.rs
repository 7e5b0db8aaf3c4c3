//! The client against `dapple::serve` on loopback, and against servers that break the rules.

mod edges;
mod hostile;
mod limits;
mod pages;
mod redirects;
mod support;
