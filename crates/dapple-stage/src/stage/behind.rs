//! What is behind an error of which only the type is known.
//!
//! A box of an error is no `Error`, nor is a text; both are what services fail with. So `StageError<E>` can ask `E` for no more than
//! what it says of itself, and could not tell what caused it. Instead, types say once how to look into them: those of this crate do
//! when a stage is made that may fail so, those of users by [`Stage::with_sources`](super::Stage::with_sources).
//!
//! Rejected: a trait of ours as the bound. It can be there for all errors or for boxes of them, not for both (a later std might make
//! boxes errors), and nobody could implement it for the error of a third party's crate.
//!
//! Rejected: `From<StageError<E>>` for boxes, with a `StageError` that is no `Error` (as `anyhow` does it). It could not be the source of
//! errors that `thiserror` makes.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use super::either::Either;
use super::error::StageError;
use super::pipeline::PipelineError;
use crate::{Refused, RemoteError};

/// How to look into an error of one type: the next one of its chain, which may be itself.
type Look = for<'e> fn(&'e (dyn Any + 'static)) -> Option<&'e (dyn Error + 'static)>;

/// One entry for each type of error in the program.
static KNOWN: LazyLock<RwLock<HashMap<TypeId, Look>>> = LazyLock::new(|| {
    RwLock::new(HashMap::from([
        (TypeId::of::<Refused>(), itself::<Refused> as Look),
        (TypeId::of::<io::Error>(), itself::<io::Error>),
        (TypeId::of::<Box<dyn Error + Send + Sync>>(), |error| {
            Some(&**error.downcast_ref::<Box<dyn Error + Send + Sync>>()?)
        }),
        (TypeId::of::<Box<dyn Error + Send>>(), |error| Some(&**error.downcast_ref::<Box<dyn Error + Send>>()?)),
        (TypeId::of::<Arc<dyn Error + Send + Sync>>(), |error| {
            Some(&**error.downcast_ref::<Arc<dyn Error + Send + Sync>>()?)
        }),
        (TypeId::of::<RemoteError>(), itself::<RemoteError>),
    ]))
});

/// The error that `error` is or holds, where its type has said how to look.
pub(super) fn behind<E: 'static>(error: &E) -> Option<&(dyn Error + 'static)> {
    let look = KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(&TypeId::of::<E>()).copied()?;
    look(error)
}

/// Errors of this type are errors.
pub(super) fn know<E: Error + 'static>() {
    insert::<E>(itself::<E>);
}

/// Errors of a stage whose service fails with `E`. To be called before there can be one.
pub(crate) fn know_stage<E: 'static>() {
    insert::<StageError<E>>(|error| match error.downcast_ref::<StageError<E>>()? {
        StageError::Refused(refused) => Some(refused),
        StageError::Service(error) => behind(error),
        _ => None,
    });
}

/// Likewise, of a pipeline. What is known of both stages is known by them.
pub(super) fn know_pipeline<A: 'static, B: 'static>() {
    insert::<PipelineError<A, B>>(|error| match error.downcast_ref::<PipelineError<A, B>>()? {
        PipelineError::First(error) => behind(error),
        PipelineError::Next(error) => behind(error),
    });
}

/// Likewise, of two services that are one.
pub(super) fn know_either<L: 'static, R: 'static>() {
    insert::<Either<L, R>>(|error| match error.downcast_ref::<Either<L, R>>()? {
        Either::Left(error) => behind(error),
        Either::Right(error) => behind(error),
    });
}

fn insert<E: 'static>(look: Look) {
    let is_known = KNOWN.read().unwrap_or_else(PoisonError::into_inner).contains_key(&TypeId::of::<E>());
    if !is_known {
        KNOWN.write().unwrap_or_else(PoisonError::into_inner).insert(TypeId::of::<E>(), look);
    }
}

fn itself<'e, E: Error + 'static>(error: &'e (dyn Any + 'static)) -> Option<&'e (dyn Error + 'static)> {
    Some(error.downcast_ref::<E>()?)
}
