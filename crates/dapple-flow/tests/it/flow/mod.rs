//! Sources, sinks and queues.

mod blocks;
mod chain;
mod completion;
mod datagrams;
mod device;
mod hostile;
mod queue;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Polls once, without a waker.
fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}
