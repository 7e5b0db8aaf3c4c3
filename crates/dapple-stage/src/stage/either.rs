//! One of two.

use std::fmt;

/// One of two types, such as the requests of two stages that were combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Either<L, R> {
    /// Of the first.
    Left(L),
    /// Of the second.
    Right(R),
}

impl<L: fmt::Display, R: fmt::Display> fmt::Display for Either<L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Either::Left(left) => left.fmt(f),
            Either::Right(right) => right.fmt(f),
        }
    }
}

impl<L: std::error::Error + 'static, R: std::error::Error + 'static> std::error::Error for Either<L, R> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Either::Left(left) => Some(left),
            Either::Right(right) => Some(right),
        }
    }
}
