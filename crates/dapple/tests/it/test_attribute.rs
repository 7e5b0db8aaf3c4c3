//! The failures of a `#[dapple::test]`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use dapple::testing::{Options, run};
use dapple::time::sleep;

const STANDING: Options = Options { workers: 2, standing_clock: true, limit_s: None, context: None };

/// The panic message of the test.
fn failure(f: impl FnOnce() -> ExitCode) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("the test fails");
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).expect("a text")
}

#[test]
fn a_test_that_waits_for_nothing_says_so() {
    let limited = Options { limit_s: Some(1), ..STANDING };
    let text = failure(|| {
        run(limited, || async {
            let _waits = dapple::task::named("waits for Godot").spawn(std::future::pending::<()>());
            std::future::pending::<()>().await
        })
    });
    for part in ["not over after 1 s", "no timer is armed", "waits for Godot", "asleep"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn a_test_that_blocks_says_so() {
    let limited = Options { limit_s: Some(1), ..STANDING };
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let text = failure(|| {
        run(limited, move || async move {
            let _ = ended.recv();
        })
    });
    for part in ["no timer is armed", "1 workers or threads in `block_on` are busy, or block", "left behind"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    drop(end);
}

#[test]
fn a_test_with_a_clock_that_cannot_jump_says_why() {
    let limited = Options { limit_s: Some(1), ..STANDING };
    let text = failure(|| {
        run(limited, || async {
            let _paused = dapple::time::pause();
            sleep(Duration::from_secs(3600)).await;
        })
    });
    for part in ["the next one in 3600s", "does not jump because of: 1 pauses"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn a_test_that_is_given_up_is_dropped() {
    struct Dropped(std::sync::mpsc::Sender<()>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let limited = Options { limit_s: Some(1), standing_clock: false, ..STANDING };
    let (tx, rx) = std::sync::mpsc::channel();
    let dropped = Dropped(tx);
    let text = failure(|| {
        run(limited, move || async move {
            let _dropped = dropped;
            sleep(Duration::from_secs(3600)).await;
        })
    });
    assert!(text.contains("Clock: the real one"), "{text}");
    rx.try_recv().expect("what the test owned is gone");
}

#[dapple::test]
#[should_panic(expected = "in the test")]
async fn a_panic_in_the_test_fails_it() {
    panic!("in the test");
}

#[dapple::test]
#[should_panic(expected = "in a task")]
async fn a_panic_in_a_task_that_is_joined_fails_it() {
    dapple::spawn(async {
        sleep(Duration::from_secs(3600)).await;
        panic!("in a task");
    })
    .await
    .unwrap()
}

#[dapple::test]
#[should_panic(expected = "in a member")]
async fn a_panic_in_a_member_of_a_scope_fails_it() {
    dapple::task::Group::scope(|group| async move {
        group.spawn(async { panic!("in a member") }).await;
        group.all_ended().await;
    })
    .await
}

#[test]
fn an_error_fails_it_and_need_not_be_send() {
    let code = |result: Result<(), &'static str>| {
        run(STANDING, move || async move {
            sleep(Duration::from_secs(1)).await;
            result.map_err(std::rc::Rc::new)?;
            Ok::<(), std::rc::Rc<&'static str>>(())
        })
    };
    assert_eq!(format!("{:?}", code(Ok(()))), format!("{:?}", ExitCode::SUCCESS));
    assert_eq!(format!("{:?}", code(Err("on purpose"))), format!("{:?}", ExitCode::FAILURE));
}

#[dapple::test]
async fn a_test_may_return_a_boxed_error() -> Result<(), Box<dyn std::error::Error>> {
    let number: u32 = "12".parse()?;
    assert_eq!(number, 12);
    Ok(())
}

#[dapple::test]
async fn a_test_need_not_be_send() {
    let shared = std::rc::Rc::new(std::cell::Cell::new(0));
    sleep(Duration::from_secs(1)).await;
    shared.set(1);
    assert_eq!(shared.get(), 1);
}
