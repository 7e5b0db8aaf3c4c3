//! A connection to a service that loses, duplicates and delays messages, both ways.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_io::time::sleep;
use dapple_sched::spawn;
use dapple_stage::BoxError;
use tower_service::Service;

/// Random numbers from a seed (SplitMix64).
#[derive(Clone)]
pub(crate) struct Random(Arc<Mutex<u64>>);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(Arc::new(Mutex::new(seed)))
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Loses `loss` percent of the requests and of the replies, and duplicates half as many requests.
#[derive(Clone)]
pub(crate) struct Lossy<S> {
    pub(crate) service: S,
    pub(crate) random: Random,
    pub(crate) loss: u64,
    pub(crate) delay_ms: u64,
}

impl<S, M> Service<M> for Lossy<S>
where
    M: Clone + Send + 'static,
    S: Service<M> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    S::Response: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, message: M) -> Self::Future {
        let Lossy { service, random, loss, delay_ms } = self.clone();
        let pass = move |mut service: S, message: M, wait_ms: u64| async move {
            sleep(Duration::from_millis(wait_ms)).await;
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            service.call(message).await.map_err(Into::into)
        };
        let delay = move |random: &Random| random.below(delay_ms + 1);
        if random.below(200) < loss {
            drop(spawn(pass(service.clone(), message.clone(), delay(&random) * 3)));
        }
        if random.below(100) < loss {
            return Box::pin(async move {
                match random.below(2) {
                    0 => pending().await,
                    _ => Err("the connection broke".into()),
                }
            });
        }
        Box::pin(async move {
            let reply = pass(service, message, delay(&random)).await;
            sleep(Duration::from_millis(delay(&random))).await;
            match random.below(100) {
                lost if lost < loss / 2 => pending().await,
                lost if lost < loss => Err("the connection broke".into()),
                _ => reply,
            }
        })
    }
}
