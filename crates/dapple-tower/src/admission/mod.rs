//! Admission: the decision whether to take, delay or refuse a request, from measurements of the
//! server itself.

mod config;
mod controller;
mod costs;
mod gate;
mod layer;
mod queue;
mod recent;
#[cfg(test)]
mod simulation;

pub use self::config::{AdmissionStats, Class, Config, Offer};
pub use self::gate::{Admission, Admitted, Gated};
pub use self::layer::{AdmissionLayer, Admit, AdmitFuture, By, Describe};
