//! Buffers: several threads await requests, and one of them drives the queue for all. A caller that
//! is never woken is a deadlock here.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dapple_tower::BoxError;
use dapple_tower::middleware::Buffer;
use dapple_tower::middleware::buffer::ServiceError;
use shuttle::future::block_on;
use shuttle::sync::Mutex;
use shuttle::thread;
use tower::{Service, ServiceExt};

use super::{Inside, check, pause, poll_once};

const SCHEDULES: usize = 6_000;

/// Takes one request at a time; as tower demands, it wakes the last poller when the response is
/// there.
struct OneAtATime {
    state: Arc<Mutex<State>>,
    inside: Inside,
    /// Calls that it takes before its readiness fails.
    left: usize,
}

#[derive(Default)]
struct State {
    is_busy: bool,
    waker: Option<Waker>,
    taken: Vec<u32>,
}

impl OneAtATime {
    fn new(left: usize) -> (OneAtATime, Arc<Mutex<State>>) {
        let state = Arc::<Mutex<State>>::default();
        (OneAtATime { state: state.clone(), inside: Inside::new(1), left }, state)
    }
}

/// Makes the service ready, and wakes.
struct Free(Arc<Mutex<State>>);

impl Drop for Free {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.lock().unwrap();
            state.is_busy = false;
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

type Reply = Pin<Box<dyn Future<Output = Result<u32, BoxError>> + Send>>;

impl Service<u32> for OneAtATime {
    type Response = u32;
    type Error = BoxError;
    type Future = Reply;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.left == 0 {
            return Poll::Ready(Err("it has done enough".into()));
        }
        let mut state = self.state.lock().unwrap();
        if state.is_busy {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u32) -> Reply {
        self.left -= 1;
        let mut state = self.state.lock().unwrap();
        assert!(!state.is_busy, "it was not ready");
        state.is_busy = true;
        state.taken.push(request);
        drop(state);
        // Other threads run at this moment.
        thread::yield_now();
        let (free, inside) = (Free(self.state.clone()), self.inside.enter());
        Box::pin(async move {
            pause().await;
            drop((inside, free));
            Ok(request)
        })
    }
}

// Three threads use a queue of two slots; one of them tries to get a slot only once.
#[test]
fn all_are_answered_and_the_queue_keeps_its_bound() {
    check(SCHEDULES, || {
        let (service, state) = OneAtATime::new(usize::MAX);
        let buffer = Buffer::new(service, 2);
        let hasty = {
            let mut buffer = buffer.clone();
            thread::spawn(move || {
                let _a_place_or_in_line = poll_once(pin!(ServiceExt::<u32>::ready(&mut buffer)));
                thread::yield_now();
            })
        };
        let callers = [0, 10, 20].map(|first| {
            let mut buffer = buffer.clone();
            thread::spawn(move || {
                for request in first..first + 2 {
                    let response = block_on(buffer.ready()).unwrap().call(request);
                    assert!(buffer.len() <= 2, "the queue is too long");
                    assert_eq!(block_on(response).unwrap(), request);
                }
            })
        });
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        hasty.join().unwrap();
        assert!(buffer.is_empty());
        let mut taken = state.lock().unwrap().taken.clone();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 10, 11, 20, 21]);
    });
}

// Four threads await the responses to four calls; the second one is dropped after some polls.
#[test]
fn a_dropped_response_holds_up_no_other_and_the_order_is_that_of_the_calls() {
    check(SCHEDULES, || {
        let (service, state) = OneAtATime::new(usize::MAX);
        let mut buffer = Buffer::new(service, 4);
        let threads = [0, 1, 2, 3].map(|request| {
            let response = block_on(buffer.ready()).unwrap().call(request);
            thread::spawn(move || {
                if request != 1 {
                    assert_eq!(block_on(response).unwrap(), request);
                    return;
                }
                let mut response = pin!(response);
                for _ in 0..2 {
                    let _perhaps = poll_once(response.as_mut());
                    thread::yield_now();
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let taken = state.lock().unwrap().taken.clone();
        assert!(taken == [0, 1, 2, 3] || taken == [0, 2, 3], "{taken:?}");
        assert!(buffer.is_empty());
        assert_eq!(block_on(buffer.oneshot(9)).unwrap(), 9, "the queue goes on");
    });
}

// The service fails after one call, while one waits for it and two more for the only place in the
// queue; all handles are kept.
#[test]
fn all_callers_see_a_service_that_fails() {
    check(SCHEDULES, || {
        let (service, _) = OneAtATime::new(1);
        let buffer = Buffer::new(service, 1);
        let answered = Arc::new(Mutex::new(0));
        let callers = [0, 1, 2, 3].map(|request| {
            let (mut buffer, answered) = (buffer.clone(), answered.clone());
            thread::spawn(move || {
                let result = match block_on(buffer.ready()) {
                    Ok(ready) => {
                        let response = ready.call(request);
                        block_on(response)
                    }
                    Err(error) => Err(error),
                };
                match result {
                    Ok(_) => *answered.lock().unwrap() += 1,
                    Err(error) => assert!(error.is::<ServiceError>(), "{error}"),
                }
                buffer
            })
        });
        let kept = callers.map(|caller| caller.join().unwrap());
        assert_eq!(*answered.lock().unwrap(), 1);
        assert!(buffer.is_empty());
        drop(kept);
    });
}
