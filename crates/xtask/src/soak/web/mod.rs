//! `cargo xtask soak web`: good and hostile clients at `dapple serve`, in a mix, for as long as wanted.
//!
//! Every good request is answered right, whatever the others do; and when all are gone, nothing of them is left.

mod clients;
mod server;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use self::clients::{Dice, Site, be_good, be_hostile};
use self::server::{Footprint, Server};

/// What is shared by all clients.
struct Run<'a> {
    port: u16,
    site: &'a Site,
    is_over: AtomicBool,
    good: AtomicU64,
    hostile: AtomicU64,
}

struct Options<'a> {
    minutes: f64,
    seed: u64,
    /// What to run instead of building it.
    program: Option<&'a str>,
}

/// Runs the soak that the arguments ask for; true if nothing failed.
pub(super) fn run(args: &[&str]) -> Result<bool, String> {
    let Options { minutes, seed, program } = options(args)?;
    println!("xtask: soak web --minutes {minutes} --seed {seed}");
    let site = Site::make()?;
    let program = program.map_or_else(server::build, |program| Ok(PathBuf::from(program)))?;
    let server = Server::start(&program, &site.folder)?;
    let run = |length, seed| round(&server, &site, length, seed);
    // What a first round leaves is what the server keeps on purpose: pages, pools, handles.
    run(WARM_UP, seed)?;
    let base = server.settled()?;
    println!("xtask: at rest {base}");
    run(Duration::from_secs_f64(60.0 * minutes), seed.wrapping_add(1))?;
    let last = server.settled()?;
    println!("xtask: at rest {last}");
    server.stop()?;
    is_back(&base, &last)
}

fn options<'a>(args: &[&'a str]) -> Result<Options<'a>, String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (mut minutes, mut seed, mut program) = (30.0, now.as_secs(), None);
    for pair in args.chunks(2) {
        let wrong = || format!("`{}`: there are --minutes M, --seed S and --program FILE", pair.join(" "));
        match *pair {
            ["--minutes", value] => minutes = value.parse().ok().filter(|minutes| *minutes > 0.0).ok_or_else(wrong)?,
            ["--seed", value] => seed = value.parse().map_err(|_| wrong())?,
            ["--program", value] => program = Some(value),
            _ => return Err(wrong()),
        }
    }
    Ok(Options { minutes, seed, program })
}

/// All clients for so long.
fn round(server: &Server, site: &Site, length: Duration, seed: u64) -> Result<(), String> {
    let (is_over, good, hostile) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let run = Run { port: server.port, site, is_over, good, hostile };
    let began = Instant::now();
    let outcome = std::thread::scope(|scope| {
        let spawn = |number: u64| {
            let (run, mut dice) = (&run, Dice::new(seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            scope.spawn(move || {
                let mut outcome = Ok(());
                while outcome.is_ok() && !run.is_over.load(Ordering::Relaxed) {
                    if number < GOOD {
                        outcome = be_good(run.port, run.site, &mut dice);
                        run.good.fetch_add(1, Ordering::Relaxed);
                    } else {
                        be_hostile(run.port, run.site, &mut dice);
                        run.hostile.fetch_add(1, Ordering::Relaxed);
                    }
                }
                run.is_over.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome
            })
        };
        let clients: Vec<_> = (0..GOOD + HOSTILE).map(spawn).collect();
        let mut events = EVENTS.iter().cycle();
        let mut next = EVENT_EVERY;
        let mut happened = Ok(());
        while happened.is_ok() && began.elapsed() < length && !run.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
            if began.elapsed() >= next
                && let Some(event) = events.next()
            {
                happened = let_happen(server, *event);
                next = began.elapsed() + EVENT_EVERY;
            }
        }
        run.is_over.store(true, Ordering::Relaxed);
        let joined = clients.into_iter().map(|client| client.join().map_err(|_| "a client panicked".to_owned())?);
        joined.collect::<Result<(), String>>().and(happened)
    });
    let (good, hostile) = (run.good.into_inner(), run.hostile.into_inner());
    println!("xtask: {good} good connections, {hostile} hostile ones in {:.0} s", began.elapsed().as_secs_f64());
    outcome
}

/// What a server in service meets.
#[derive(Clone, Copy)]
enum Event {
    Reload,
    Stop,
    Upgrade,
}

fn let_happen(server: &Server, event: Event) -> Result<(), String> {
    match event {
        Event::Reload => server.signal("HUP"),
        Event::Stop => {
            server.signal("STOP")?;
            std::thread::sleep(Duration::from_secs(3));
            server.signal("CONT")
        }
        Event::Upgrade => server.upgrade(),
    }
}

fn is_back(base: &Footprint, last: &Footprint) -> Result<bool, String> {
    if last.descriptors > base.descriptors + DESCRIPTORS_MORE {
        return Err(format!("{} descriptors are open, {} were before", last.descriptors, base.descriptors));
    }
    if last.resident_kb > base.resident_kb + RESIDENT_KB_MORE {
        return Err(format!("{} KB are resident, {} were before", last.resident_kb, base.resident_kb));
    }
    if last.threads > base.threads {
        return Err(format!("there are {} threads, {} were before", last.threads, base.threads));
    }
    Ok(true)
}

const WARM_UP: Duration = Duration::from_secs(10);

const EVENTS: [Event; 4] = [Event::Reload, Event::Stop, Event::Reload, Event::Upgrade];
/// Not within the warm-up, which is shorter.
const EVENT_EVERY: Duration = Duration::from_secs(11);

/// How many clients there are at a time.
const GOOD: u64 = 8;
const HOSTILE: u64 = 24;

/// What may come and go: a handle that is kept for the next, a timer.
const DESCRIPTORS_MORE: usize = 4;

/// What an allocator may hold on to.
const RESIDENT_KB_MORE: usize = 16 << 10;
