//! Finds the cause inside an error of a known type.
//!
//! A boxed error is not an `Error`, nor is a text; services fail with both. So `StageError<E>` can
//! require of `E` no more than a message, and could not return its cause. Instead, a type registers
//! once how to look into it: types of this crate when a stage with such an error is made, types of
//! users through [`Stage::with_sources`](super::Stage::with_sources).
//!
//! Rejected: a trait of ours as the bound. It could be implemented for all errors or for boxed
//! ones, not for both (a later std might make boxes errors), and no user could implement it for a
//! third party's error.
//!
//! Rejected: `From<StageError<E>>` for boxes, with a `StageError` that is not an `Error` (as
//! `anyhow` does). It could not be the source of errors made by `thiserror`.

use std::any::{Any, TypeId};
// REAL: a static, which is made once for all simulations, and never walked through.
use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use super::either::Either;
use super::error::StageError;
use super::pipeline::PipelineError;
use crate::{Refused, RemoteError};

/// Looks into an error of one type: returns the next error of its chain, which may be itself.
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

/// The error that `error` is or holds, if its type is registered.
pub(super) fn behind<E: 'static>(error: &E) -> Option<&(dyn Error + 'static)> {
    let look = KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(&TypeId::of::<E>()).copied()?;
    look(error)
}

/// Registers a type that is an error itself.
pub(super) fn know<E: Error + 'static>() {
    insert::<E>(itself::<E>);
}

/// Registers the errors of a stage with a service that fails with `E`. Call it before such an error
/// can occur.
pub(crate) fn know_stage<E: 'static>() {
    insert::<StageError<E>>(|error| match error.downcast_ref::<StageError<E>>()? {
        StageError::Refused(refused) => Some(refused),
        StageError::Service(error) => behind(error),
        _ => None,
    });
}

/// Registers the errors of a pipeline of two registered stages.
pub(super) fn know_pipeline<A: 'static, B: 'static>() {
    insert::<PipelineError<A, B>>(|error| match error.downcast_ref::<PipelineError<A, B>>()? {
        PipelineError::First(error) => behind(error),
        PipelineError::Next(error) => behind(error),
    });
}

/// Registers the errors of two combined services.
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
