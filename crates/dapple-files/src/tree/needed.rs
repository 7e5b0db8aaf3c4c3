//! The state of a file that a change needs: the one that its client saw.

use std::io;

use dapple::fs::Beneath;

use super::{Attributes, calls};
use crate::path::TreePath;

/// The state of a file that a change needs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Needed {
    /// Any.
    #[default]
    Any,
    /// There is a file.
    Exists,
    /// The file is as it was, or still missing.
    Same(Option<Attributes>),
}

/// The file is not in the state that a change needs.
#[derive(Debug, thiserror::Error)]
#[error("the file changed meanwhile")]
pub(crate) struct Changed;

impl Needed {
    /// # Errors
    ///
    /// [`Changed`]; errors of the kernel.
    pub(super) fn check(&self, beneath: &Beneath, path: &TreePath) -> io::Result<()> {
        let found = || match calls::stat(beneath, path) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let holds = match self {
            Needed::Any => true,
            Needed::Exists => found()?.is_some(),
            Needed::Same(seen) => found()?.map(|found| found.tag()) == seen.map(|seen| seen.tag()),
        };
        if holds { Ok(()) } else { Err(io::Error::other(Changed)) }
    }

    /// As [`check`](Self::check), of a file that is open.
    pub(crate) fn check_found(&self, found: &Attributes) -> io::Result<()> {
        match self {
            Needed::Same(seen) if seen.map(|seen| seen.tag()) != Some(found.tag()) => Err(io::Error::other(Changed)),
            _ => Ok(()),
        }
    }

    /// The error of the kernel for a file that is not in the state that is needed.
    pub(crate) fn refused(&self, error: io::Error) -> io::Error {
        match (self, error.kind()) {
            (Needed::Exists | Needed::Same(Some(_)), io::ErrorKind::NotFound)
            | (Needed::Same(None), io::ErrorKind::AlreadyExists) => io::Error::other(Changed),
            _ => error,
        }
    }
}

/// Whether a change was refused because its file changed before.
pub(crate) fn is_changed(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Changed>())
}
