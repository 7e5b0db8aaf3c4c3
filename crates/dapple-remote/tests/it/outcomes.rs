//! Each way in which a request can end has its own error.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_io::net::TcpListener;
use dapple_io::time::{Instant, sleep};
use dapple_remote::{Encoding, Fate, Host, HostLimits, Peer, RemoteError, RemoteStage, deadline, within};
use dapple_stage::{BoxError, Reason, Refused};
use dapple_sync::sync::Semaphore;
use dapple_sync::task::{TraceContext, traced};

use super::{Running, echo, runtime};

fn remote(error: &BoxError) -> &RemoteError {
    error.downcast_ref().unwrap_or_else(|| panic!("a remote error: {error}"))
}

#[test]
fn messages_come_back_in_both_encodings_and_from_all_stages_of_a_peer() {
    let runtime = runtime();
    runtime.block_on(async {
        let host = echo().register_fn("add", |(a, b): (u64, u64)| async move { Ok::<_, BoxError>(a + b) }).build();
        let running = Running::start(host);
        let peer = Peer::new(running.address.as_str()).unwrap();
        for encoding in [Encoding::Postcard, Encoding::Json] {
            let mut echo: RemoteStage<String, String> = peer.stage("echo").encoding(encoding);
            let mut add: RemoteStage<(u64, u64), u64> = peer.stage("add").encoding(encoding);
            assert_eq!(echo.send(String::new()).await.unwrap(), "");
            assert_eq!(echo.send("grüße".repeat(50_000)).await.unwrap(), "grüße".repeat(50_000));
            assert_eq!(add.send((20, 22)).await.unwrap(), 42);
        }
        assert!(peer.is_connected());
        assert_eq!(running.end().await.connections_cut, 0);
    });
}

#[test]
fn empty_messages_are_messages() {
    let runtime = runtime();
    runtime.block_on(async {
        let host = Host::builder().register_fn("tick", |()| async { Ok::<_, BoxError>(()) }).build();
        let running = Running::start(host);
        running.stage::<(), ()>("tick").send(()).await.unwrap();
        running.end().await;
    });
}

#[test]
fn errors_panics_and_refusals_cross_as_what_they_are() {
    let runtime = runtime();
    runtime.block_on(async {
        let refusal = Refused::new(Reason::Share { len: 3 }, Duration::from_millis(1700));
        let told = refusal.clone();
        let handler = move |how: String| {
            let told = told.clone();
            async move {
                match how.as_str() {
                    "fail" => Err(BoxError::from(std::io::Error::other("the disk is full"))),
                    "refuse" => Err(told.into()),
                    "panic" => panic!("of {how}"),
                    _ => Ok(how),
                }
            }
        };
        let running = Running::start(Host::builder().register_fn("stage", handler).build());
        let mut stage: RemoteStage<String, String> = running.stage("stage");
        let error = stage.send("fail".into()).await.unwrap_err();
        assert!(matches!(remote(&error), RemoteError::Failed(text) if text == "the disk is full"), "{error:?}");
        assert_eq!(Fate::of(&error), Fate::Ran);
        let error = stage.send("panic".into()).await.unwrap_err();
        assert!(matches!(remote(&error), RemoteError::Panicked(text) if text == "of panic"), "{error:?}");
        let error = stage.send("refuse".into()).await.unwrap_err();
        assert_eq!(error.downcast_ref::<Refused>(), Some(&refusal));
        assert_eq!(Fate::of(&error), Fate::NotRun);
        assert_eq!(stage.send("fine".into()).await.unwrap(), "fine", "a panic ends one request only");
        running.end().await;
    });
}

#[test]
fn other_names_and_other_types_are_clear_errors() {
    let runtime = runtime();
    runtime.block_on(async {
        let running = Running::start(echo().build());
        let error = running.stage::<String, String>("ecko").send("a".into()).await.unwrap_err();
        assert!(matches!(remote(&error), RemoteError::NoStage { stage, .. } if stage == "ecko"));
        assert!(error.to_string().contains("this host has echo"), "{error}");
        let error = running.stage::<u32, String>("echo").send(7).await.unwrap_err();
        assert!(matches!(remote(&error), RemoteError::Mismatch { .. }), "{error:?}");
        assert!(error.to_string().contains("`String -> String`, and the sender `u32 -> String`"), "{error}");
        // The same names, with other contents.
        let lying = running.stage::<u64, String>("echo").schema("String -> String").send(u64::MAX).await.unwrap_err();
        assert!(matches!(remote(&lying), RemoteError::Malformed(_)), "{lying:?}");
        for error in [error, lying] {
            assert_eq!(Fate::of(&error), Fate::NotRun);
        }
        running.end().await;
    });
}

#[test]
fn a_reply_that_is_no_such_message_has_run() {
    let runtime = runtime();
    runtime.block_on(async {
        let running = Running::start(echo().build());
        let mut stage = running.stage::<String, u8>("echo").schema("String -> String");
        let error = stage.send("long enough".into()).await.unwrap_err();
        assert!(matches!(remote(&error), RemoteError::Reply(_)), "{error:?}");
        assert_eq!(Fate::of(&error), Fate::Ran);
        running.end().await;
    });
}

#[test]
fn messages_have_a_longest_size_on_both_sides() {
    let runtime = runtime();
    runtime.block_on(async {
        let mut limits = HostLimits::default();
        limits.body_max_bytes = 1000;
        let repeat = |count: usize| async move { Ok::<_, BoxError>("x".repeat(count)) };
        let running = Running::start(echo().register_fn("repeat", repeat).limits(limits).build());
        let mut echo: RemoteStage<String, String> = running.stage("echo");
        assert!(echo.send("x".repeat(990)).await.is_ok());
        let error = echo.send("x".repeat(1000)).await.unwrap_err();
        assert!(
            matches!(remote(&error), RemoteError::TooLarge(text) if text.contains("takes 1000 at most")),
            "{error:?}"
        );
        let error = running.stage::<usize, String>("repeat").send(2000).await.unwrap_err();
        assert!(
            matches!(remote(&error), RemoteError::Failed(text) if text.contains("the reply has 2002 bytes")),
            "{error:?}"
        );
        let small = Peer::builder(running.address.as_str()).message_len_max(100).build().unwrap();
        let error = small.stage::<String, String>("echo").send("x".repeat(200)).await.unwrap_err();
        assert!(matches!(remote(&error), RemoteError::TooLarge(text) if text.contains("of this side")), "{error:?}");
        let error = small.stage::<usize, String>("repeat").send(500).await.unwrap_err();
        assert!(matches!(remote(&error), RemoteError::Reply(_)), "{error:?}");
        drop((small, echo));
        running.end().await;
    });
}

/// A stage that runs until it is dropped, and counts both.
fn endless(begun: &Arc<Semaphore>, dropped: &Arc<Semaphore>) -> dapple_remote::HostBuilder {
    struct OnDrop(Arc<Semaphore>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.add_permits(1);
        }
    }
    let (begun, dropped) = (begun.clone(), dropped.clone());
    Host::builder().register_fn("endless", move |()| {
        let on_drop = OnDrop(dropped.clone());
        begun.add_permits(1);
        async move {
            let _on_drop = on_drop;
            std::future::pending::<()>().await;
            Ok::<(), BoxError>(())
        }
    })
}

#[test]
fn a_request_out_of_time_is_dropped_by_its_host() {
    let runtime = runtime();
    runtime.block_on(async {
        let (begun, dropped) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let running = Running::start(endless(&begun, &dropped).build());
        let mut stage = running.stage::<(), ()>("endless").timeout(Duration::from_millis(300));
        let error = stage.send(()).await.unwrap_err();
        let is_sent = matches!(remote(&error), RemoteError::TimedOut { sent: true, .. });
        assert!(is_sent && Fate::of(&error) == Fate::Unknown, "{error:?}");
        dropped.acquire().await.unwrap().forget();
        running.end().await;
    });
}

#[test]
fn the_work_on_an_abandoned_reply_stops() {
    let runtime = runtime();
    runtime.block_on(async {
        let (begun, dropped) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let running = Running::start(endless(&begun, &dropped).build());
        let mut stage = running.stage::<(), ()>("endless");
        let waiting = dapple_sched::spawn(async move { stage.send(()).await });
        begun.acquire().await.unwrap().forget();
        waiting.abort();
        dropped.acquire().await.unwrap().forget();
        running.end().await;
    });
}

#[test]
fn a_deadline_goes_along_and_what_is_late_does_not_run() {
    let runtime = runtime();
    runtime.block_on(async {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let handler = move |()| {
            counted.fetch_add(1, Ordering::SeqCst);
            async {
                Ok::<_, BoxError>(deadline().map(|until| until.saturating_duration_since(Instant::now()).as_secs()))
            }
        };
        let running = Running::start(Host::builder().register_fn("left", handler).build());
        let mut stage = running.stage::<(), Option<u64>>("left").timeout(None);
        assert_eq!(stage.send(()).await.unwrap(), None);
        let left = within(Instant::now() + Duration::from_secs(1000), stage.send(())).await.unwrap();
        assert!(left.is_some_and(|left| (900..=1000).contains(&left)), "{left:?}");
        let before = runs.load(Ordering::SeqCst);
        let late = within(Instant::now() - Duration::from_millis(1), stage.send(())).await.unwrap_err();
        assert!(late.is::<Refused>() || Fate::of(&late) == Fate::NotRun, "{late:?}");
        assert_eq!(runs.load(Ordering::SeqCst), before);
        running.end().await;
    });
}

#[test]
fn the_trace_of_the_sender_goes_along() {
    let runtime = runtime();
    runtime.block_on(async {
        let handler = |()| async { Ok::<_, BoxError>(TraceContext::current().map(|context| context.to_string())) };
        let running = Running::start(Host::builder().register_fn("trace", handler).build());
        let mut stage = running.stage::<(), Option<String>>("trace");
        assert_eq!(stage.send(()).await.unwrap(), None);
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let sender = TraceContext::parse(text.as_bytes());
        assert_eq!(traced(sender, stage.send(())).await.unwrap().as_deref(), Some(text));
        running.end().await;
    });
}

#[test]
fn too_many_requests_are_refused_and_the_sender_waits_at_its_own_limit() {
    let runtime = runtime();
    runtime.block_on(async {
        let (begun, dropped) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let mut limits = HostLimits::default();
        limits.requests_max = 2;
        let running = Running::start(endless(&begun, &dropped).limits(limits).build());
        let peer = Peer::builder(running.address.as_str()).in_flight_max(3).build().unwrap();
        let occupy = || {
            let mut stage = peer.stage::<(), ()>("endless");
            dapple_sched::spawn(async move { stage.send(()).await })
        };
        let first = [occupy(), occupy()];
        begun.acquire_many(2).await.unwrap().forget();
        let refused = peer.stage::<(), ()>("endless").send(()).await.unwrap_err();
        let refused = refused.downcast_ref::<Refused>().expect("a refusal");
        assert_eq!(refused.reason, Reason::Full { len: 2 });
        assert!(refused.retry_after > Duration::ZERO);
        first.iter().for_each(|task| task.abort());
        dropped.acquire_many(2).await.unwrap().forget();

        let mut held = peer.stage::<(), ()>("endless");
        let places: Vec<_> = (0..3).map(|_| peer.stage::<(), ()>("endless")).collect();
        let mut ready = Vec::new();
        for mut place in places {
            std::future::poll_fn(|cx| tower_service::Service::poll_ready(&mut place, cx)).await.unwrap();
            ready.push(place);
        }
        let waits = std::future::poll_fn(|cx| {
            std::task::Poll::Ready(tower_service::Service::poll_ready(&mut held, cx).is_pending())
        });
        assert!(waits.await, "three places are taken");
        ready.pop();
        std::future::poll_fn(|cx| tower_service::Service::poll_ready(&mut held, cx)).await.unwrap();
        drop((held, ready));
        running.end().await;
    });
}

#[test]
fn memory_for_messages_is_bounded() {
    let runtime = runtime();
    runtime.block_on(async {
        let mut limits = HostLimits::default();
        limits.requests_memory_bytes = 100 << 10;
        let begun = Arc::new(Semaphore::new(0));
        let counted = begun.clone();
        let hold = move |text: String| {
            let begun = counted.clone();
            async move {
                if text.starts_with('h') {
                    begun.add_permits(1);
                    std::future::pending::<()>().await;
                }
                Ok::<_, BoxError>(text.len())
            }
        };
        let running = Running::start(Host::builder().register_fn("hold", hold).limits(limits).build());
        let mut stage = running.stage::<String, usize>("hold");
        let mut other = stage.clone();
        let held = dapple_sched::spawn(async move { other.send("h".repeat(90 << 10)).await });
        begun.acquire().await.unwrap().forget();
        let refused = stage.send("x".repeat(50 << 10)).await.unwrap_err();
        assert_eq!(refused.downcast_ref::<Refused>().map(|refused| &refused.reason), Some(&Reason::Memory));
        held.abort();
        while stage.send("x".repeat(50 << 10)).await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
        running.end().await;
    });
}

#[test]
fn an_unreachable_host_is_an_error_at_once_and_is_found_again() {
    let runtime = runtime();
    runtime.block_on(async {
        // A free port that was in use just before.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let mut stage: RemoteStage<String, String> = Peer::new(address.to_string()).unwrap().stage("echo");
        let error = stage.send("a".into()).await.unwrap_err();
        assert!(matches!(remote(&error), RemoteError::Unreachable { why, .. } if why.contains("refused")), "{error:?}");
        assert_eq!(Fate::of(&error), Fate::NotRun);
        let again = stage.send("a".into()).await.unwrap_err();
        assert!(matches!(remote(&again), RemoteError::Unreachable { .. }), "{again:?}");

        let listener = TcpListener::bind(address).unwrap();
        let host = echo().build();
        let stop = host.stopper();
        let serving = dapple_sched::spawn(host.serve(listener));
        while let Err(error) = stage.send("a".into()).await {
            assert_eq!(Fate::of(&error), Fate::NotRun, "{error}");
            sleep(Duration::from_millis(10)).await;
        }
        stop.stop();
        serving.await.unwrap().unwrap();
    });
}
