//! The functions that `#[dapple::test]` expands to. Not for programs: they may change with the
//! attribute.

use std::any::Any;
use std::fmt::Write;
use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::pin::pin;
use std::process::{ExitCode, Termination};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use dapple_io::{Config, EpollDriver};
use dapple_sched::foreign::KeptWaker;
use dapple_sched::{Builder, Handle, Runtime};

/// The attribute's options.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The workers of the test's runtime.
    pub workers: usize,
    /// A clock that can stand still, or the real one.
    pub standing_clock: bool,
    /// Real time after which the test fails; `None` for the default.
    pub limit_s: Option<u64>,
    /// Further settings of the runtime.
    pub context: Option<Context>,
}

/// A setting of the runtime that an attribute asks for.
pub type Context = fn(Builder) -> Builder;

/// The expansion of the attributes' option `tokio`.
#[cfg(feature = "tokio-compat")]
#[doc(hidden)]
#[macro_export]
macro_rules! __tokio_context {
    () => {
        <$crate::Builder as $crate::tokio_compat::BuilderExt>::tokio
    };
}

/// The expansion of the attributes' option `tokio`.
#[cfg(not(feature = "tokio-compat"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __tokio_context {
    () => {
        compile_error!(
            "the option `tokio` needs Dapple's feature `tokio-compat`: `cargo add dapple --features tokio-compat`"
        )
    };
}

/// The expansion of the option `sim` of `#[dapple::test]`.
#[cfg(feature = "sim")]
#[doc(hidden)]
#[macro_export]
macro_rules! __simulate {
    ($name:expr, $seeds:expr, $scenario:expr) => {
        $crate::sim::check($name, $seeds, $scenario)
    };
}

/// The expansion of the option `sim` of `#[dapple::test]`.
#[cfg(not(feature = "sim"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __simulate {
    ($name:expr, $seeds:expr, $scenario:expr) => {
        compile_error!("the option `sim` needs Dapple's feature `sim`: `cargo add --dev dapple --features sim`")
    };
}

/// Runs a test in a new runtime and on a new thread, so that a hanging test can be given up.
///
/// # Panics
///
/// If the test panics, or takes longer than the limit.
#[track_caller]
pub fn run<F, R>(options: Options, test: impl FnOnce() -> F + Send + 'static) -> ExitCode
where
    F: Future<Output = R>,
    R: Termination,
{
    let limit = limit(options.limit_s);
    let give_up = Arc::new(GiveUp::default());
    let (over, is_over) = mpsc::channel::<()>();
    let (started, has_started) = mpsc::channel::<Handle>();
    // The names of threads identify tests, also in the messages of panics.
    let name = thread::current().name().unwrap_or("dapple-test").to_owned();
    let thread = thread::Builder::new().name(name).spawn({
        let give_up = give_up.clone();
        move || {
            let _over = over;
            let runtime = runtime(options);
            let _ = started.send(runtime.handle().clone());
            // A report contains the error, on the output that the harness captures. It need not be
            // `Send`.
            let report = runtime.block_on(unless(&give_up, test())).map(Termination::report);
            drop(runtime);
            report
        }
    });
    let thread = thread.unwrap_or_else(|error| panic!("the test's thread could not start: {error}"));
    // An error of another kind: the thread has ended.
    let timed_out = limit.is_some_and(|limit| is_over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout));
    if timed_out {
        // Before the test is dropped, which would change the picture.
        let mut message = picture(limit.unwrap_or_default(), has_started.try_recv().ok());
        give_up.now();
        if is_over.recv_timeout(LAST_RESPITE) == Err(RecvTimeoutError::Timeout) {
            message += "\nIts thread blocks and is left behind.";
        } else {
            drop(thread.join());
        }
        panic!("{message}");
    }
    match thread.join() {
        Ok(report) => report.expect("the test was not given up"),
        Err(payload) => end_as(payload),
    }
}

/// Ends the test with a panic that was reported on its own thread.
fn end_as(payload: Box<dyn Any + Send>) -> ! {
    resume_unwind(payload)
}

fn runtime(options: Options) -> Runtime {
    let mut config = Config::default();
    config.standing_clock = options.standing_clock;
    let builder = dapple_io::runtime_builder_with(config).workers(options.workers).thread_name("test");
    let builder = options.context.unwrap_or(|builder| builder)(builder);
    builder.build().unwrap_or_else(|error| panic!("the test's runtime could not start: {error}"))
}

/// The limit in the environment overrides that of the attribute: it depends on the speed of the
/// machine.
fn limit(limit_s: Option<u64>) -> Option<Duration> {
    let given = std::env::var(LIMIT_VARIABLE).ok().map(|text| match text.trim().parse() {
        Ok(limit_s) => limit_s,
        Err(_) => panic!("{LIMIT_VARIABLE} is a whole number of seconds, or 0 for no limit, not {text:?}"),
    });
    let limit_s = given.or(limit_s).unwrap_or(LIMIT_DEFAULT_S);
    (limit_s > 0).then(|| Duration::from_secs(limit_s))
}

/// The state of a hanging test.
fn picture(limit: Duration, runtime: Option<Handle>) -> String {
    let mut text = format!(
        "the test is not over after {} s of real time (`limit_s` in its attribute, or {LIMIT_VARIABLE}, changes that).",
        limit.as_secs()
    );
    let Some(runtime) = runtime else {
        return text + " Its runtime has not started.";
    };
    let _ = match runtime.driver::<EpollDriver>().and_then(EpollDriver::clock_dump) {
        Some(clock) => write!(text, "\nClock: {clock}."),
        None => write!(text, "\nClock: the real one."),
    };
    let _ = write!(text, "\nRuntime: {}", runtime.dump());
    text
}

/// A request to end a hanging test.
#[derive(Default)]
struct GiveUp {
    is_wanted: AtomicBool,
    waker: Mutex<Option<KeptWaker>>,
}

impl GiveUp {
    fn now(&self) {
        // Release pairs with the load in `unless`.
        self.is_wanted.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        waker.into_iter().for_each(KeptWaker::wake);
    }
}

/// The future's output, or `None` if it was given up first.
async fn unless<F: Future>(give_up: &GiveUp, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let waker = KeptWaker::from(cx.waker());
        let old = give_up.waker.lock().unwrap_or_else(PoisonError::into_inner).replace(waker);
        drop(old);
        // Acquire pairs with `GiveUp::now`; after the waker is stored.
        if give_up.is_wanted.load(Ordering::Acquire) {
            return Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Overrides the attribute's limit, in seconds of real time; 0 for no limit.
const LIMIT_VARIABLE: &str = "DAPPLE_TEST_LIMIT_S";

/// The default limit in seconds of real time.
const LIMIT_DEFAULT_S: u64 = 60;

/// How long a given-up test may take to drop its values.
const LAST_RESPITE: Duration = Duration::from_secs(3);
