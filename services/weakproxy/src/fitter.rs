//! The stage that fits bodies to devices. The body is the color: the same one is fitted once, and different ones in parallel.

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use dapple::Handle;
use dapple::blocking::spawn_blocking;
use dapple::http::relay::media_type;
use dapple::stage::{Once, Stage};
use serde::{Deserialize, Serialize};

use crate::fit::{Fit, format_of};
use crate::{page, picture};

/// The kind of a body that can be fitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Picture,
    /// With its charset, if the origin names one.
    Page(Option<String>),
}

impl Kind {
    /// By the fields of an answer; `None` for all that cannot be fitted.
    pub(crate) fn of(fields: &HeaderMap) -> Option<Kind> {
        match media_type(fields)? {
            (kind, _) if format_of(&kind).is_some() => Some(Kind::Picture),
            (kind, charset) => (kind == "text/html").then_some(Kind::Page(charset)),
        }
    }

    /// The longest body that is fitted.
    pub(crate) fn len_max(&self) -> usize {
        if *self == Kind::Picture { 8 << 20 } else { 2 << 20 }
    }
}

/// A body for the device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fitted {
    /// Its media type, if that is another one.
    pub(crate) kind: Option<String>,
    pub(crate) body: Bytes,
    /// A word about what was done, for a field of the answer.
    pub(crate) note: String,
}

pub(crate) struct Fitter {
    stage: Once<Job, Fitted, String>,
    hasher: RandomState,
}

struct Job {
    key: u64,
    kind: Kind,
    body: Bytes,
    fit: Arc<Fit>,
}

impl Fitter {
    pub(crate) fn new() -> Fitter {
        let stage = Stage::builder("fit").width(Handle::current().workers()).color_by(|job: &Job| job.key);
        let stage = stage.queue_len_max(QUEUE_LEN_MAX).shed().deadline(WAIT_MAX);
        // In threads of its own: a worker would accept and answer nothing for the time of a picture.
        let stage = stage.wrap_fn(async |job: Job| {
            let done = spawn_blocking(move || work(&job).map_err(|error| error.to_string()));
            done.await.unwrap_or_else(|error| Err(error.to_string()))
        });
        Fitter { stage: Once::new(stage), hasher: RandomState::new() }
    }

    /// Fits a body to a device. While that lasts, other requests for the same get the same answer.
    ///
    /// # Errors
    /// The reason why it cannot be done, or not now.
    pub(crate) async fn fit(&self, kind: Kind, body: Bytes, fit: Arc<Fit>) -> Result<Fitted, String> {
        let key = self.hasher.hash_one((&kind, &body, &*fit));
        self.stage.ask(key, Job { key, kind, body, fit }).await.map_err(|error| error.to_string())
    }
}

fn work(Job { kind, body, fit, .. }: &Job) -> Result<Fitted, Box<dyn Error>> {
    let (done, made) = match kind {
        Kind::Picture => {
            ("scaled", picture::scaled(body, fit)?.map(|(kind, bytes)| (Some(kind.to_mime_type().to_owned()), bytes)))
        }
        Kind::Page(charset) => ("stripped", Some((None, page::stripped(body, charset.as_deref(), fit)?))),
    };
    Ok(match made.filter(|(_, bytes)| bytes != body) {
        Some((kind, bytes)) => Fitted { kind, body: bytes.into(), note: format!("{done}; from={}", body.len()) },
        None => Fitted { kind: None, body: body.clone(), note: "unchanged; why=\"it fits\"".to_owned() },
    })
}

/// Jobs that wait; each has a body, which counts among those in flight.
const QUEUE_LEN_MAX: usize = 256;
/// A client that would wait longer gets the body as it is.
const WAIT_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use serde_json::json;

    use super::*;

    #[dapple::test]
    async fn the_same_body_is_fitted_once() {
        let fitter = Fitter::new();
        let (phone, pager) = (Fit::of(&json!({"width": 32})), Fit::of(&json!({"width": 16})));
        let (phone, pager) = (Arc::new(phone), Arc::new(pager));
        let page = Bytes::from("<p><!-- -->".repeat(1000));
        let ask = |fit: &Arc<Fit>| fitter.fit(Kind::Page(None), page.clone(), fit.clone());
        let all = join_all([ask(&phone), ask(&phone), ask(&pager), ask(&phone)]).await;
        let at: Vec<_> = all.iter().map(|made| made.as_ref().unwrap().body.as_ptr()).collect();
        assert!(at[0] == at[1] && at[1] == at[3] && at[0] != at[2], "{at:?}");
        assert_eq!(fitter.stage.stage().stats().served, 2);
    }
}
