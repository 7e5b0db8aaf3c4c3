//! Composition operators.

mod aggregate;
mod flow;
mod receiver;

use super::{check, pause, poll_once};
