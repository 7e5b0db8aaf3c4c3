//! The two directions of a stream, each with its own owner.

use std::ops::Deref;
use std::sync::Arc;

use crate::stream::{RawRead, RawWrite};

/// The reading half of a stream; see `into_split`. Has the stream's methods.
#[derive(Debug)]
pub struct ReadHalf<S: RawRead>(Arc<S>);

/// The writing half of a stream; see `into_split`. Has the stream's methods. Dropping it ends that
/// direction: the peer reads the end of the stream.
#[derive(Debug)]
pub struct WriteHalf<S: RawWrite>(Arc<S>);

impl<S: RawRead> ReadHalf<S> {
    pub(crate) fn new(stream: Arc<S>) -> Self {
        ReadHalf(stream)
    }
}

impl<S: RawWrite> WriteHalf<S> {
    pub(crate) fn new(stream: Arc<S>) -> Self {
        WriteHalf(stream)
    }
}

impl<S: RawRead> Deref for ReadHalf<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S: RawWrite> Deref for WriteHalf<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S: RawWrite> Drop for WriteHalf<S> {
    fn drop(&mut self) {
        // A connection that has ended needs no end.
        let _ = self.0.raw_close();
    }
}
