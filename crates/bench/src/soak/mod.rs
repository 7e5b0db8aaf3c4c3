//! `bench soak`: random programs for hours; nothing may be lost, duplicated, stuck or left behind.
//!
//! `soak scheduler` makes runtimes one after the other, each for a second or two, and lets random programs run in them
//! that use all that the scheduler offers: posts of every kind from callbacks, tasks and other threads, states held in
//! line, alone, for reading and several at once, tasks that wait, spawn, are aborted and panic, names that come and go,
//! capacities, cancels, priorities; and shutdowns of every kind in the middle of it. Beside them run the programs of
//! [`nesting`]. The programs repeat with the seed; what the machine makes of them does not.
//!
//! | what must hold | checked by |
//! |---|---|
//! | The programs repeat with the seed; their timing on the machine does not. | [`book`], [`token`] |
//! | a graceful shutdown drops nothing but background tasks | [`trial`] |
//! | a writer holds its color alone, also in destructors; posts of one poster arrive in order | [`lane`], [`state`] |
//! | every panic reaches the handler, a joiner, or the inline caller | [`trial`] |
//! | there is always progress | [`watch`] |
//! | a written state has one user at a time, also on one thread; a dropped, forgotten or panicking item takes nothing from others | [`nesting`] |
//! | threads and descriptors return to their earlier numbers, memory stays flat | [`process`] |
//!
//! # Bugs that it caught
//!
//! | bug | found by | after |
//! |---|---|---|
//! | a grant to read is released as if it had been exclusive (was in the code) | a writer together with readers; no progress | a second |
//! | the poll that a grant needs comes after the end of the turn that it had to precede (was in the code) | no progress | 20 seconds at 8 workers |
//! | an aborted task and a wait that was granted to it keep each other alive (was in the code) | memory grows by 1 MiB a minute | 15 minutes |
//! | one in a thousand releases of a held color forgets its queue | no progress | seconds |
//! | a callback that a shutdown drops is forgotten, one in 64 | the accounts do not balance | seconds |
//! | two posts from outside change places, one in 64 | order | a second |
//! | a closure is called twice, one in 64 | the allocator aborts | a second |
//! | a writer ignores readers | a closure inside of another one; a crash | a second |

mod book;
mod lane;
mod life;
#[path = "../../../dapple-sched/tests/nested/mod.rs"]
mod nested;
mod nesting;
mod ops;
mod outside;
mod process;
mod report;
mod sets;
mod state;
mod tasks;
mod token;
mod trial;
mod watch;

use anyhow::{Result, ensure};
use report::Summary;
use std::panic::PanicHookInfo;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};
use watch::Watch;

/// Arguments of `bench soak`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Random programs on the scheduler, in one runtime after the other
    ///
    /// Checks that every callback runs once or is dropped once, that colors exclude and keep order,
    /// that nothing hangs, and that memory, threads and descriptors do not grow. Exits with 1 if a
    /// check fails, and says how to repeat it.
    Scheduler(SchedulerArgs),
}

#[derive(clap::Args)]
struct SchedulerArgs {
    /// How long, in minutes; fractions are fine
    #[arg(long, default_value_t = 30.0, value_name = "M")]
    minutes: f64,
    /// Workers of each runtime
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// The seed of the random programs [default: the time]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// The first runtime of the seed, counted from 0
    #[arg(long, default_value_t = 0, value_name = "R")]
    first: u64,
    /// The approximate life of each runtime, in milliseconds
    #[arg(long, default_value_t = 1_500, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    life_ms: u64,
}

/// Panics from accesses to poisoned states, in the current runtime.
static POISONED: AtomicU64 = AtomicU64::new(0);

/// Other panics, on any thread.
static UNEXPECTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Runs what the arguments ask for; an error if a promise was broken.
pub(crate) fn run(args: &Args) -> Result<()> {
    let What::Scheduler(args) = &args.what;
    ensure!(
        args.minutes > 0.0 && args.minutes <= 100_000.0,
        "--minutes {} makes no sense: pass a number above 0, such as 0.5 or 30",
        args.minutes
    );
    let seed = args.seed.unwrap_or_else(|| {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Short enough to type.
        crate::rng::mix(time.as_nanos() as u64) % 1_000_000_000
    });
    std::panic::set_hook(Box::new(hear_panic));
    soak(args, seed)
}

fn soak(args: &SchedulerArgs, seed: u64) -> Result<()> {
    let (workers, life_mean) = (usize::from(args.workers), Duration::from_millis(args.life_ms));
    let length = Duration::from_secs_f64(args.minutes * 60.0);
    eprintln!("soak scheduler: {workers} workers, {:.1} minutes, --seed {seed}", args.minutes);
    let watch = Watch::start()?;
    let (begin, before) = (Instant::now(), process::Census::take()?);
    let mut summary = Summary::new(workers, seed);
    let mut next_line = LINE_EVERY;
    let mut index = args.first;
    while index == args.first || begin.elapsed() < length {
        let setting = trial::Setting {
            workers,
            seed: crate::rng::mix(seed ^ crate::rng::mix(index)),
            life_mean,
            before,
            watch: &watch,
            repeat: format!("bench soak scheduler --workers {workers} --seed {seed} --first {index}"),
        };
        let outcome = trial::run(&setting)?;
        let broken = !outcome.problems.is_empty() || !unexpected().is_empty();
        summary.add(outcome);
        if broken {
            let problems = [summary.problems(), unexpected()].concat().join("\n  ");
            print!("{}", summary.text(begin.elapsed()));
            anyhow::bail!("runtime {index} broke a promise:\n  {problems}\nrepeat it: {}", setting.repeat);
        }
        if begin.elapsed() >= next_line {
            eprintln!("{}", summary.line(begin.elapsed()));
            next_line = begin.elapsed() + LINE_EVERY;
        }
        index += 1;
    }
    watch.phase("the end");
    print!("{}", summary.text(begin.elapsed()));
    summary.verdict()
}

/// Gets all panics except the deliberate ones, which the hook filters out.
fn hear_panic(info: &PanicHookInfo<'_>) {
    if std::thread::current().name().is_some_and(|name| name.starts_with(nesting::THREADS)) {
        return;
    }
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("(no text)");
    if text.contains("is poisoned") {
        POISONED.fetch_add(1, Relaxed);
        return;
    }
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    eprintln!("soak: an unexpected panic, at {place}: {text}");
    UNEXPECTED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(format!("panic at {place}: {text}"));
}

fn unexpected() -> Vec<String> {
    UNEXPECTED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
}

/// How often a line of progress is printed.
const LINE_EVERY: Duration = Duration::from_secs(10);
