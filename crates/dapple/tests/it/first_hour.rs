//! `docs/first-hour.md` quotes messages: each is what Dapple prints.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dapple::{Colored, Runtime};

const PAGE: &str = include_str!("../../../../docs/first-hour.md");

/// The page must quote the whole panic message of `f`, or its end.
fn quoted(f: impl FnOnce()) {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    let message = payload
        .downcast::<String>()
        .map(|text| *text)
        .or_else(|payload| payload.downcast::<&str>().map(|text| text.to_string()))
        .expect("a panic with a text");
    let quotes = || PAGE.split("```text\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    assert!(quotes().any(|quote| message.ends_with(quote)), "not in docs/first-hour.md: {message}");
}

/// Runs `f` as a task, and panics as it does.
fn in_a_task(runtime: &Runtime, f: impl FnOnce() + Send + 'static) {
    if let Err(error) = runtime.block_on(runtime.spawn(async { f() })) {
        std::panic::resume_unwind(error.into_panic());
    }
}

#[test]
fn the_first_hour_quotes_what_dapple_says() {
    let runtime = dapple::builder().workers(1).build().unwrap();
    let _entered = runtime.enter();
    let (a, b) = (Colored::new(1), Colored::new(2));
    quoted(|| a.with_blocking(|_| b.with_blocking(|_| ())));
    a.clear_poison();
    quoted(|| {
        let inner = a.clone();
        a.with_blocking(|_| {
            let mut future = std::pin::pin!(inner.with(|_| ()));
            let _ = future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        })
    });
    assert!(a.is_poisoned());
    quoted(|| a.with_blocking(|_| ()));
    let state = b.clone();
    quoted(|| in_a_task(&runtime, move || state.with_blocking(|_| ())));
    quoted(|| in_a_task(&runtime, || dapple::wait(async {})));
}

#[test]
fn the_first_hour_quotes_what_a_bare_runtime_says() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let error = runtime.block_on(async { dapple::net::TcpListener::bind("127.0.0.1:0").unwrap_err().to_string() });
    let quote = "the Dapple runtime has no epoll driver";
    assert!(error.starts_with(quote) && PAGE.contains(quote), "{error}");
}
