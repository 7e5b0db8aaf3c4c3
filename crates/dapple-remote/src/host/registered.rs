//! A stage without its types.

use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use dapple_stage::panic_message;
use dapple_tower::{BoxError, Refused, with_causes};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_service::Service;

use super::replicas::Replicas;
use super::staged::Ended;
use crate::encoding::Encoding;
use crate::schema::schema_of;
use crate::wire::{Outcome, Problem};

/// The answer: the bytes of a reply, or the problem.
pub(crate) type Answer = Result<Bytes, Problem>;

/// See the module's text.
pub(crate) trait Registered: Send + Sync {
    /// The schema that both sides use for its types.
    fn schema(&self) -> &str;

    /// The number of replicas, and of their requests.
    fn load(&self) -> (usize, usize);

    /// Runs a request in this encoding.
    fn call(&self, encoding: Encoding, message: Bytes) -> Pin<Box<dyn Future<Output = Answer> + Send>>;
}

/// A stage before the number of its replicas is known.
pub(crate) trait Registration: Send {
    fn start(self: Box<Self>, replicas: usize) -> Box<dyn Registered>;
    fn schema(&self) -> &str;
}

pub(crate) struct Typed<Req, Make> {
    schema: String,
    make: Make,
    types: PhantomData<fn(Req)>,
}

impl<Req, Make> Typed<Req, Make> {
    pub(crate) fn new<S: Service<Req>>(make: Make) -> Typed<Req, Make>
    where
        Make: Fn(usize) -> S,
    {
        Typed { schema: schema_of::<Req, S::Response>(), make, types: PhantomData }
    }

    pub(crate) fn with_schema(self, schema: &str) -> Self {
        Typed { schema: crate::schema::in_a_header(schema), ..self }
    }
}

impl<Req, S, Make> Registration for Typed<Req, Make>
where
    Make: Fn(usize) -> S + Send,
    S: Service<Req> + Clone + Send + 'static,
    S::Response: Serialize + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    Req: DeserializeOwned + Send + 'static,
{
    fn start(self: Box<Self>, replicas: usize) -> Box<dyn Registered> {
        let services = (0..replicas.max(1)).map(&self.make).collect();
        Box::new(Started::<Req, S> {
            schema: self.schema,
            replicas: Mutex::new(Replicas::new(services)),
            types: PhantomData,
        })
    }

    fn schema(&self) -> &str {
        &self.schema
    }
}

struct Started<Req, S> {
    schema: String,
    /// Locked only to choose and clone one.
    replicas: Mutex<Replicas<S>>,
    types: PhantomData<fn(Req)>,
}

impl<Req, S> Registered for Started<Req, S>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Response: Serialize + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    Req: DeserializeOwned + Send + 'static,
{
    fn schema(&self) -> &str {
        &self.schema
    }

    fn load(&self) -> (usize, usize) {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner).load()
    }

    fn call(&self, encoding: Encoding, message: Bytes) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        let request: Req = match encoding.decode(&message) {
            Ok(request) => request,
            Err(error) => {
                let text = format!("this is no message for a stage with the schema `{}`: {error}", self.schema);
                return Box::pin(std::future::ready(Err(Problem::new(Outcome::Malformed, text))));
            }
        };
        drop(message);
        let (mut service, place) = self.replicas.lock().unwrap_or_else(PoisonError::into_inner).choose();
        Box::pin(unless_it_panics(async move {
            let _place = place;
            let problem = |error: S::Error| problem_of(error.into());
            poll_fn(|cx| service.poll_ready(cx).map_err(problem)).await?;
            let reply = service.call(request).await.map_err(problem)?;
            let unwritten = |error| Problem::new(Outcome::Failed, format!("the reply cannot be written: {error}"));
            encoding.encode(&reply).map_err(unwritten)
        }))
    }
}

fn problem_of(error: BoxError) -> Problem {
    if let Some(refused) = Refused::find(&*error) {
        return Problem::refused(refused);
    }
    match error.downcast_ref() {
        Some(Ended::Panicked(message)) => Problem::new(Outcome::Panicked, message),
        Some(ended @ Ended::Expired(_)) => Problem::new(Outcome::TimedOut, ended.to_string()),
        None => Problem::new(Outcome::Failed, with_causes(&*error)),
    }
}

/// Turns a panic into the end of its request. The service stays, so it must cope with state that
/// the panic left half-changed.
async fn unless_it_panics(future: impl Future<Output = Answer>) -> Answer {
    let mut future = pin!(future);
    let caught = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(answer)) => Poll::Ready(answer),
        Err(payload) => Poll::Ready(Err(Problem::new(Outcome::Panicked, panic_message(payload)))),
    });
    caught.await
}
