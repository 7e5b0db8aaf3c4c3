//! The stage that fits bodies to devices. The body is the color: the same one is fitted once, and different ones in parallel.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use dapple::Handle;
use dapple::blocking::spawn_blocking;
use dapple::http::relay::media_type;
use dapple::stage::{Once, Stage};
use dapple::sync::Semaphore;
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
        Fitter::with(Arc::new(Semaphore::new(Handle::current().workers())))
    }

    /// `running` has a place for each job that runs, also on after the stage has given it up.
    fn with(running: Arc<Semaphore>) -> Fitter {
        let stage = Stage::builder("fit").width(running.available_permits()).deadline(WAIT_MAX);
        let stage = stage.color_by(|job: &Job| job.key).queue_len_max(QUEUE_LEN_MAX).shed();
        // In threads of its own: a worker would accept and answer nothing for the time of a picture.
        let stage = stage.wrap_fn(move |job: Job| {
            let place = running.clone().acquire_owned();
            async move {
                let place = place.await;
                spawn_blocking(move || (work(&job), drop(place)).0).await.unwrap_or_else(|error| Err(error.to_string()))
            }
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

fn work(Job { kind, body, fit, .. }: &Job) -> Result<Fitted, String> {
    let (done, made) = match kind {
        Kind::Picture => {
            let scaled = picture::scaled(body, fit).map_err(|error| error.to_string())?;
            ("scaled", scaled.map(|(kind, bytes)| (Some(kind.to_mime_type().to_owned()), bytes)))
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
    use dapple::time::timeout;
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

    #[dapple::test]
    async fn no_job_begins_while_as_many_run_on_that_the_stage_has_given_up() {
        let running = Arc::new(Semaphore::new(2));
        let fitter = Fitter::with(running.clone());
        let fit = Arc::new(Fit::of(&json!({})));
        let run_on = running.acquire_many_owned(2).await.unwrap();
        let mut asked = std::pin::pin!(fitter.fit(Kind::Page(None), Bytes::from("<p><!-- -->"), fit));
        assert!(timeout(Duration::from_secs(1), asked.as_mut()).await.is_err());
        drop(run_on);
        assert_eq!(asked.await.unwrap().body, "<p>");
    }
}
