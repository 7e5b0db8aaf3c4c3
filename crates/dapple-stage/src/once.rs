//! Equal requests, combined.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_sync::sync::watch;

use crate::{Stage, StageError};

/// A stage that serves equal requests once: those that come while one is queued or in service get its response.
///
/// Equal are requests with the same key. If the caller that came first leaves, the request goes on for the others.
///
/// ```
/// use dapple_stage::{Once, Stage};
///
/// let runtime = dapple_io::runtime_builder().workers(2).build()?;
/// runtime.block_on(async {
///     let pages = Stage::builder("pages").wrap_sync(|name: String| format!("<h1>{name}</h1>"));
///     let pages = Once::new(pages);
///     assert_eq!(pages.ask(1, "a".to_owned()).await, Ok("<h1>a</h1>".to_owned()));
///     assert_eq!(pages.stage().stats().served, 1);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Once<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    stage: Stage<Req, Resp, E>,
    flights: Arc<Flights<Resp, E>>,
}

/// Requests that are queued or in service.
type Flights<Resp, E> = Mutex<BTreeMap<u64, watch::Receiver<Answer<Resp, E>>>>;
type Answer<Resp, E> = Option<Result<Resp, StageError<E>>>;

impl<Req, Resp, E> Once<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// Combines equal requests to a stage.
    #[must_use]
    pub fn new(stage: Stage<Req, Resp, E>) -> Self {
        Once { stage, flights: Arc::default() }
    }

    /// The stage.
    #[must_use]
    pub fn stage(&self) -> &Stage<Req, Resp, E> {
        &self.stage
    }

    /// Asks, or joins an equal request. `key` must tell requests with other responses apart, also against clients that choose
    /// them: use a hash with random keys.
    ///
    /// # Cancel safety
    /// A dropped call leaves the request to the others, and to the stage.
    ///
    /// # Errors
    /// As [`Stage::ask`].
    pub async fn ask(&self, key: u64, request: Req) -> Result<Resp, StageError<E>> {
        let mut receiver = self.join(key, request);
        match receiver.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone().unwrap_or(Err(StageError::Stopped)),
            Err(_) => Err(StageError::Stopped),
        }
    }

    fn join(&self, key: u64, request: Req) -> watch::Receiver<Answer<Resp, E>> {
        let (sender, receiver) = watch::channel(None);
        match lock(&self.flights).entry(key) {
            Entry::Occupied(flight) => return flight.get().clone(),
            Entry::Vacant(place) => place.insert(receiver.clone()),
        };
        // Not under the lock, which the end of the task takes: where the runtime has shut down, that is now.
        let landing = Landing { key, flights: self.flights.clone() };
        let answer = self.stage.ask(request);
        drop(self.stage.runtime().spawn(async move {
            let answer = answer.await;
            // Before the answer: a request that comes later is another one.
            drop(landing);
            sender.send_replace(Some(answer));
        }));
        receiver
    }
}

/// Removes a request from the list, also if its task is dropped.
struct Landing<Resp: Send + 'static, E: Send + 'static> {
    key: u64,
    flights: Arc<Flights<Resp, E>>,
}

impl<Resp: Send + 'static, E: Send + 'static> Drop for Landing<Resp, E> {
    fn drop(&mut self) {
        lock(&self.flights).remove(&self.key);
    }
}

fn lock<Resp, E>(flights: &Flights<Resp, E>) -> MutexGuard<'_, BTreeMap<u64, watch::Receiver<Answer<Resp, E>>>> {
    flights.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<Req, Resp, E> fmt::Debug for Once<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("stage", &self.stage.name()).finish_non_exhaustive()
    }
}
