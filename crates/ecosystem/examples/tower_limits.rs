//! tower's `ConcurrencyLimit` under `LoadShed`: two requests at a time, the others are refused.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tower::load_shed::error::Overloaded;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

#[dapple::main]
async fn main() {
    // The requests wait in here until the program releases them.
    let gate = Arc::new(Semaphore::new(0));
    let at_gate = gate.clone();
    let work = service_fn(move |number: u32| {
        let gate = at_gate.clone();
        async move {
            gate.acquire().await.expect("nobody closes it").forget();
            Ok::<_, Infallible>(number * 2)
        }
    });
    let mut service = ServiceBuilder::new().load_shed().concurrency_limit(2).service(work);

    let (mut accepted, mut refused) = (Vec::new(), 0);
    for number in 1..=5 {
        // Each runs in a task of its own, in parallel with the others.
        let reply = dapple::spawn(service.ready().await.expect("it sheds rather than wait").call(number));
        match number {
            1 | 2 => accepted.push(reply),
            _ => refused += u32::from(reply.await.expect("no panic").is_err_and(|error| error.is::<Overloaded>())),
        }
    }
    gate.add_permits(2);
    let mut replies = Vec::new();
    for reply in accepted {
        replies.push(reply.await.expect("no panic").expect("it is within the limit"));
    }
    assert_eq!((replies.as_slice(), refused), ([2, 4].as_slice(), 3));
    println!("answered: {replies:?}; refused at once: {refused}");
}
