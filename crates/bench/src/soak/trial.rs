//! One runtime, from its start to the end of everything it has left behind.

use super::book::{Book, Entry, Kind};
use super::life::{Life, Plan};
use super::nesting;
use super::outside;
use super::process::Census;
use super::watch::Watch;
use crate::rng::Rng;
use anyhow::{Context, Result};
use dapple_sched::{Runtime, ShutdownReport};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The end of a runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Posting has ended, and the shutdown waits for all items.
    Graceful,
    /// A shutdown with a limit of some milliseconds, while threads post.
    Deadline,
    /// Dropped while threads post.
    Drop,
    /// Dropped by one of its own callbacks, while threads post.
    Inside,
}

impl Ending {
    pub(crate) const ALL: [Ending; 4] = [Ending::Graceful, Ending::Deadline, Ending::Drop, Ending::Inside];

    fn draw(rng: &mut Rng) -> Ending {
        match rng.below(10) {
            0..4 => Ending::Graceful,
            4..6 => Ending::Deadline,
            6..9 => Ending::Drop,
            _ => Ending::Inside,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Ending::Graceful => "graceful",
            Ending::Deadline => "with a deadline",
            Ending::Drop => "at once",
            Ending::Inside => "from inside",
        }
    }
}

/// The outcome of one runtime.
pub(crate) struct Outcome {
    pub(crate) ending: Ending,
    /// In the order of [`Kind::ALL`].
    pub(crate) entries: Vec<Entry>,
    pub(crate) outside: u64,
    pub(crate) nested: u64,
    pub(crate) panics: u64,
    /// The shutdown left a worker without progress behind.
    pub(crate) stuck: u64,
    pub(crate) census: Census,
    pub(crate) problems: Vec<String>,
}

/// The parameters of a trial.
pub(crate) struct Setting<'a> {
    pub(crate) workers: usize,
    pub(crate) seed: u64,
    /// The approximate life of the runtime.
    pub(crate) life_mean: Duration,
    /// Threads and descriptors before the trial.
    pub(crate) before: Census,
    pub(crate) watch: &'a Watch,
    pub(crate) repeat: String,
}

pub(crate) fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let mut rng = Rng::new(setting.seed);
    let book = Arc::new(Book::new());
    super::POISONED.store(0, Relaxed);
    let runtime = build(setting.workers, &book)?;
    let watch = setting.watch;
    watch.life(setting.repeat.clone(), &book, runtime.handle());
    let plan = Plan::draw(&mut rng);
    let life = Arc::new(Life::new(plan, book.clone(), runtime.handle().clone(), &mut rng));
    // If a closure were dropped twice, it would take a reference that is not its own; these extra
    // references ensure that it is not the last one.
    let spare: Vec<_> = (0..SPARE).map(|_| life.clone()).collect();
    let ending = Ending::draw(&mut rng);

    watch.phase("the runtime is at work");
    let threads = start_threads(&life, setting.workers, &mut rng)?;
    let share = 0.3 + 1.4 * rng.below(1_000) as f64 / 1_000.0;
    let until = Instant::now() + setting.life_mean.mul_f64(share);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
        // The outside threads may all be waiting for tasks that wait for bells.
        drop(life.bag.take_bell(&mut rng));
    }
    watch.phase(format!("its end has come: {}", ending.name()));
    let report = end(ending, runtime, &life, threads, &mut rng, watch);
    settle(life, spare, &book, watch);
    watch.forget();
    watch.phase("its threads and descriptors are to go");
    let census = wait_for_kernel(&setting.before, watch)?;
    if let Some(report) = report {
        check_report(ending, &report, &book);
    }
    check_book(ending, &book);
    let panics = &book.panics;
    Ok(Outcome {
        ending,
        entries: book.entries(),
        outside: book.outside.load(Relaxed),
        nested: book.nested.load(Relaxed),
        panics: panics.thrown.load(Relaxed),
        stuck: report.map_or(0, |report| report.workers_stuck as u64),
        census,
        problems: book.problems(),
    })
}

fn build(workers: usize, book: &Arc<Book>) -> Result<Runtime> {
    let heard = book.clone();
    let runtime = Runtime::builder()
        .workers(workers)
        .thread_name("soak")
        .panic_handler(move |_| {
            heard.panics.told.fetch_add(1, Relaxed);
        })
        // The longest callback here sleeps for 20 ms; on a busy machine any may take longer.
        .slow_callback(Duration::from_millis(10), |_| ())
        .build();
    runtime.context("cannot start a runtime")
}

fn start_threads(life: &Arc<Life>, workers: usize, rng: &mut Rng) -> Result<Vec<JoinHandle<()>>> {
    let start = |name: String, work: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name).spawn(work).context("cannot start a thread")
    };
    let mut threads = Vec::new();
    for index in 0..life.plan.threads {
        let (life, seed) = (life.clone(), rng.draw());
        threads.push(start(format!("outside-{index}"), Box::new(move || outside::run(&life, index, seed)))?);
    }
    let (life, seed) = (life.clone(), rng.draw());
    threads.push(start(nesting::THREADS.to_owned(), Box::new(move || nesting::run(&life, workers, seed)))?);
    Ok(threads)
}

/// Ends the runtime, and the threads that post to it.
fn end(
    ending: Ending,
    runtime: Runtime,
    life: &Arc<Life>,
    threads: Vec<JoinHandle<()>>,
    rng: &mut Rng,
    watch: &Watch,
) -> Option<ShutdownReport> {
    let stop_threads = |threads: Vec<JoinHandle<()>>| {
        life.open.store(false, Relaxed);
        life.bag.close();
        watch.phase("the outside threads are to stop");
        for thread in threads {
            if thread.join().is_err() {
                life.book.problem(|| "an outside thread panicked".to_owned());
            }
        }
        watch.phase("the outside threads have stopped");
    };
    match ending {
        Ending::Graceful => {
            stop_threads(threads);
            // The watchdog's limit is shorter.
            Some(runtime.shutdown(Duration::from_secs(3_600)))
        }
        Ending::Deadline | Ending::Drop | Ending::Inside => {
            let report = match ending {
                Ending::Deadline => Some(runtime.shutdown(Duration::from_millis(rng.range(1, 50)))),
                Ending::Inside => {
                    let (_, color) = life.pick_color(rng);
                    color.post(move || drop(runtime));
                    None
                }
                _ => {
                    drop(runtime);
                    None
                }
            };
            // Late items must be dropped or refused, and states stay usable.
            std::thread::sleep(Duration::from_millis(rng.range(0, 20)));
            stop_threads(threads);
            report
        }
    }
}

/// Waits until only the main thread refers to the runtime, and then until that has ended too.
fn settle(life: Arc<Life>, spare: Vec<Arc<Life>>, book: &Arc<Book>, watch: &Watch) {
    watch.phase("what refers to the runtime is to go");
    while Arc::strong_count(&life) > SPARE + 1 {
        std::thread::sleep(Duration::from_micros(200));
    }
    if Arc::strong_count(&life) < SPARE + 1 {
        let missing = SPARE + 1 - Arc::strong_count(&life);
        book.problem(|| format!("C7: {missing} closures were dropped twice"));
        // Dropping it could be a second drop.
        std::mem::forget((life, spare));
        return;
    }
    drop(spare);
    drop(life);
    watch.phase("the accounts are to balance");
    while book.entries().iter().any(|entry| entry.outstanding() != 0) {
        if book.entries().iter().any(|entry| (entry.outstanding() as i64) < 0) {
            return;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Waits until the threads and descriptors of the runtime are gone.
fn wait_for_kernel(before: &Census, watch: &Watch) -> Result<Census> {
    loop {
        let census = Census::take()?;
        if census.threads <= before.threads && census.descriptors <= before.descriptors {
            watch.phase("the next runtime is to start");
            return Ok(census);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The shutdown's report must match the accounts.
fn check_report(ending: Ending, report: &ShutdownReport, book: &Book) {
    if ending == Ending::Graceful {
        let background = book.entries()[Kind::Background as usize].unrun;
        // Background tasks are dropped at the end, each in one callback.
        if report.tasks_dropped != 0 || report.callbacks_dropped > background {
            book.problem(|| format!("C7: a graceful shutdown reports {report:?}, with {background} background tasks"));
        }
    }
}

/// All accounts must balance, and dropped items must have a reason.
fn check_book(ending: Ending, book: &Book) {
    for (kind, entry) in Kind::ALL.iter().zip(book.entries()) {
        let name = kind.name();
        if entry.outstanding() != 0 || !entry.same {
            book.problem(|| format!("C7: {name}: what ended is not what was made: {entry:?}"));
        }
        if entry.unrun < entry.excused.iter().sum() {
            book.problem(|| format!("C7: {name}: some ran that were refused or canceled: {entry:?}"));
        } else if entry.dropped() > 0 && ending == Ending::Graceful {
            book.problem(|| format!("C7: {name}: {} lost by a graceful shutdown: {entry:?}", entry.dropped()));
        }
    }
    let panics = &book.panics;
    let thrown = panics.thrown.load(Relaxed) + super::POISONED.load(Relaxed);
    let [told, joined, caught] = [&panics.told, &panics.joined, &panics.caught].map(|count| count.load(Relaxed));
    if thrown != told + joined + caught {
        book.problem(|| {
            format!("C8: {thrown} panics; the handler heard of {told}, joiners of {joined}, callers of {caught}")
        });
    }
}

/// References to a runtime's life, for the case that its end takes some by mistake.
const SPARE: usize = 1_000;
