//! The error of a buffer.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::BoxError;

/// The buffered service has failed, and takes no more requests. Its own error is the source.
#[derive(Clone, Debug)]
pub struct ServiceError {
    inner: Arc<BoxError>,
}

impl ServiceError {
    pub(super) fn new(inner: BoxError) -> ServiceError {
        ServiceError { inner: Arc::new(inner) }
    }
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the buffered service has failed: {}", self.inner)
    }
}

impl Error for ServiceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let inner: &BoxError = &self.inner;
        Some(&**inner)
    }
}
