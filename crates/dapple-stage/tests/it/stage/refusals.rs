//! A refusal is recognized however the stages around it are composed.

use std::error::Error;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_stage::graph::named;
use dapple_stage::{BoxError, Either, Reason, Refused, Replica, Stage, StageError, fuse};
use dapple_tower::middleware::{Retry, ShedLayer, TimeoutLayer, retry};
use tower::{Layer, ServiceExt};
use tower_service::Service;

/// A service that refuses, with an error of the given type.
struct Refuses<E>(fn(Refused) -> E);

impl<E> Clone for Refuses<E> {
    fn clone(&self) -> Self {
        Refuses(self.0)
    }
}

impl<E> Service<u32> for Refuses<E> {
    type Response = u32;
    type Error = E;
    type Future = Ready<Result<u32, E>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: u32) -> Self::Future {
        ready(Err((self.0)(refusal())))
    }
}

fn refusal() -> Refused {
    Refused::new(Reason::Rate, Duration::from_secs(7))
}

fn boxed() -> Refuses<BoxError> {
    Refuses(|refused| refused.into())
}

/// As a server looks: through the chain of sources of the boxed error.
async fn is_found<S>(service: S) -> bool
where
    S: Service<u32>,
    S::Response: std::fmt::Debug,
    S::Error: Into<BoxError>,
{
    let error: BoxError = service.oneshot(1).await.map_err(Into::into).expect_err("it refuses");
    Refused::find(&*error) == Some(&refusal())
}

#[derive(Debug, thiserror::Error)]
#[error("the account is not known")]
struct Own<E: Error + 'static>(#[source] E);

#[dapple::test]
async fn in_stages_around_stages() {
    let one = || Stage::builder("1").wrap(boxed());
    assert!(is_found(one()).await);
    let two = || Stage::builder("2").wrap(one());
    assert!(is_found(two()).await);
    assert!(is_found(Stage::builder("3").wrap(two())).await);
    assert!(is_found(Stage::builder("refused").wrap(Refuses(|refused| refused))).await);
    assert!(is_found(Stage::builder("io").wrap(Refuses(std::io::Error::other))).await);
    let shared = Refuses(|refused| Arc::new(refused) as Arc<dyn Error + Send + Sync>);
    assert!(is_found(Stage::builder("shared").wrap(shared)).await);
    let sent = Refuses(|refused| Box::new(refused) as Box<dyn Error + Send>);
    let error = Stage::builder("sent").wrap(sent).ask(1).await.unwrap_err();
    assert_eq!(Refused::find(&error), Some(&refusal()));
}

#[dapple::test]
async fn in_pipelines() {
    let pass = || Stage::builder("pass").wrap_sync(|n: u32| n);
    let last = || Stage::builder("last").wrap(boxed());
    assert!(is_found(pass().then(last())).await);
    assert!(is_found(last().then(pass())).await);
    assert!(is_found(pass().then(pass()).then(last())).await);
    assert!(is_found(pass().then(named("service", Refuses(|refused| refused)))).await);
    let inside = || Stage::builder("inside").wrap(pass().then(pass()).then(Stage::builder("deep").wrap(last())));
    assert!(is_found(inside()).await);
    assert!(is_found(pass().then(inside())).await);
}

#[dapple::test]
async fn in_what_was_combined_and_replicated() {
    let pass = || Stage::builder("pass").wrap_sync(|n: u32| n);
    let one = || Stage::builder("one").wrap(boxed());
    let combined = Stage::builder("both").combine(one(), Refuses(|refused| refused));
    assert!(is_found(combined.left()).await && is_found(combined.right()).await);
    let error: BoxError = combined.stage().ask(Either::Left(1)).await.unwrap_err().into();
    assert_eq!(Refused::find(&*error), Some(&refusal()));
    assert!(is_found(Stage::builder("around a side").wrap(combined.left())).await);
    assert!(is_found(fuse(pass(), one())).await);
    assert!(is_found(fuse(pass(), Refuses(|refused| refused))).await);
    assert!(is_found(Stage::builder("fused").wrap(fuse(boxed(), boxed()))).await);
    assert!(is_found(Stage::builder("fused").wrap(fuse(pass(), fuse(pass(), one())))).await);
    let replicated = Stage::builder("replicated").replicate(1..=2, move |_| one());
    assert!(is_found(replicated.clone()).await);
    assert!(is_found(Stage::builder("around replicas").wrap(replicated)).await);
    let start = |_| std::future::ready(Ok(Replica::new(Stage::builder("one").wrap(boxed()))));
    let replicas = Stage::builder("replicas").replicate_with(1..=1, start);
    assert!(is_found(Stage::builder("around replicas").wrap(replicas)).await);
}

#[dapple::test]
async fn in_middleware() {
    let one = || Stage::builder("one").wrap(boxed());
    let timeout = TimeoutLayer::new(Duration::from_secs(60));
    assert!(is_found(timeout.layer(one())).await);
    let shed = || ShedLayer::new().layer(timeout.layer(one()));
    assert!(is_found(Stage::builder("around").wrap(shed())).await);
    let once = retry::Attempts::new(1);
    assert!(is_found(Stage::builder("around").wrap(Retry::new(once, Stage::builder("in").wrap(shed())))).await);
}

#[dapple::test]
async fn in_errors_of_the_users() {
    type Account = Own<StageError<BoxError>>;
    let one = Stage::builder("one").wrap(boxed());
    let handler = move |n| {
        let asked = one.ask(n);
        async move { asked.await.map_err(Own) as Result<u32, Account> }
    };
    let stage = Stage::builder("account").wrap_fn(handler).with_sources();
    assert!(is_found(stage.clone()).await);
    assert!(is_found(Stage::builder("around").wrap(stage.clone())).await);
    let pass = Stage::builder("pass").wrap_sync(|n: u32| n);
    assert!(is_found(pass.clone().then(stage.clone())).await);
    assert!(is_found(fuse(pass, stage)).await);
}

/// A failure that is not a refusal is not taken for one, and keeps its message.
#[dapple::test]
async fn other_failures_are_none() {
    let failing = || Stage::builder("failing").wrap_fn(async |_: u32| Err::<u32, BoxError>("disk full".into()));
    let error = Stage::builder("around").wrap(failing()).ask(1).await.unwrap_err();
    assert_eq!((error.to_string().as_str(), Refused::find(&error)), ("disk full", None));
    let text = Stage::builder("text").wrap_fn(async |_: u32| Err::<u32, _>("no text")).ask(1).await.unwrap_err();
    assert_eq!((Refused::find(&text), text.source().is_none()), (None, true));
}
