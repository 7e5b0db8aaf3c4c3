//! Handlers that wait until a test releases them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use dapple_io::time::sleep;
use dapple_stage::{Stage, StageStats};
use dapple_sync::sync::Semaphore;

/// Releases calls, one for each permit.
#[derive(Clone)]
pub(crate) struct Gate {
    permits: Arc<Semaphore>,
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate { permits: Arc::new(Semaphore::new(0)), inside: Arc::default(), most: Arc::default() }
    }

    pub(crate) fn open(&self, calls: usize) {
        self.permits.add_permits(calls);
    }

    pub(crate) async fn pass(&self) {
        let inside = Inside::enter(self);
        self.permits.acquire().await.expect("the semaphore is never closed").forget();
        drop(inside);
    }

    /// The number of calls inside, and its maximum so far.
    pub(crate) fn inside(&self) -> (usize, usize) {
        (self.inside.load(SeqCst), self.most.load(SeqCst))
    }
}

struct Inside(Gate);

impl Inside {
    fn enter(gate: &Gate) -> Inside {
        let now = gate.inside.fetch_add(1, SeqCst) + 1;
        gate.most.fetch_max(now, SeqCst);
        Inside(gate.clone())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, SeqCst);
    }
}

/// Waits until the stage is in this state.
pub(crate) async fn until<Req, Resp, E>(stage: &Stage<Req, Resp, E>, wanted: impl Fn(&StageStats) -> bool)
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    eventually(|| wanted(&stage.stats())).await;
}

/// Waits until the condition holds; the test's own time limit applies.
pub(crate) async fn eventually(mut so: impl FnMut() -> bool) {
    while !so() {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Part of a request; tells whether that has been freed.
#[derive(Clone, Debug)]
pub(crate) struct State(Arc<()>);

impl State {
    pub(crate) fn new() -> State {
        State(Arc::new(()))
    }

    /// The number of requests that hold it.
    pub(crate) fn held(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}
