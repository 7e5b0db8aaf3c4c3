//! `bench settings`: the gain and cost of the runtime's settings of time: the interval at which a
//! busy worker polls the kernel, the time slice, and the share of events. One worker is never idle,
//! and answers packets meanwhile.

use crate::colors::spin::{Spin, calibrate};
use crate::output::{Output, Report};
use crate::stats::{Table, median};
use crate::words::{check_secs, checked, name, verdict};
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use dapple_io::net::UnixStream;
use dapple_sched::{Builder, Color, Runtime};
use serde::Serialize;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Arguments of `bench settings`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// The settings to vary (default: all)
    #[arg(long, value_delimiter = ',', value_name = "SETTING,...")]
    only: Vec<Setting>,
    /// Work per callback, in nanoseconds
    #[arg(long, default_value_t = 2_000)]
    work_ns: u64,
    /// Repetitions; the values take turns within each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds measured per run
    #[arg(long, default_value_t = 0.5)]
    secs: f64,
}

/// The varied setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Setting {
    /// `Builder::poll_interval`, in microseconds: with 64 colors with a callback each
    PollInterval,
    /// `Builder::time_slice`, in microseconds: with 4 colors with long queues
    TimeSlice,
    /// `Builder::event_share`, in percent: with 64 colors with a callback each, and a thread that
    /// keeps 64 more posted
    EventShare,
}

impl Setting {
    fn values(self) -> &'static [u64] {
        match self {
            Setting::PollInterval => &[10, 50, 200, 1_000],
            Setting::TimeSlice => &[50, 200, 500, 1_000],
            Setting::EventShare => &[10, 25, 50, 75, 90],
        }
    }

    fn set(self, builder: Builder, value: u64) -> Builder {
        match self {
            Setting::PollInterval => builder.poll_interval(Duration::from_micros(value)),
            Setting::TimeSlice => builder.time_slice(Duration::from_micros(value)),
            Setting::EventShare => builder.event_share(value as u8),
        }
    }
}

struct Trial {
    setting: Setting,
    value: u64,
    run: usize,
}

/// The result of one run: one line of JSON.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    setting: Setting,
    /// In the setting's unit.
    value: u64,
    run: usize,
    /// Callbacks that posted themselves again.
    inside_per_s: f64,
    /// Callbacks that a thread posted.
    outside_per_s: f64,
    /// Answered packets; one is in flight.
    packets: usize,
    /// From the write of a packet to the read of its answer.
    p50_us: f64,
    p99_us: f64,
    checked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Runs the requested trials and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    check_secs(args.secs, 60.0)?;
    let about = args.output.begin()?;
    let spin = Spin::of_rounds((args.work_ns as f64 * calibrate()).round() as u64);
    let all = args.output.repeat(
        args.runs,
        |run| trials(args, run),
        |trial| (name(trial.setting), trial.value.to_string()),
        |trial| measure(trial, spin, args.secs).unwrap_or_else(|error| failed(trial, format!("{error:#}"))),
    )?;
    args.output.end(&about, &report(&all, args))?;
    verdict(&all, |run| {
        let problem = run.problem.as_ref()?;
        Some(format!("{} {} run={}: {problem}", name(run.setting), run.value, run.run))
    })
}

fn trials(args: &Args, run: usize) -> Vec<Trial> {
    let wanted = |setting: &&Setting| args.only.is_empty() || args.only.contains(setting);
    let settings = Setting::value_variants().iter().filter(wanted);
    settings.flat_map(|&setting| setting.values().iter().map(move |&value| Trial { setting, value, run })).collect()
}

fn failed(trial: &Trial, problem: String) -> Measured {
    let &Trial { setting, value, run } = trial;
    let (packets, checked, problem) = (0, false, Some(problem));
    Measured {
        setting,
        value,
        run,
        inside_per_s: 0.0,
        outside_per_s: 0.0,
        packets,
        p50_us: 0.0,
        p99_us: 0.0,
        checked,
        problem,
    }
}

/// The callbacks that keep the worker busy, and their counts.
#[derive(Default)]
struct Load {
    inside: AtomicU64,
    outside: AtomicU64,
    /// Posts of the thread that have not run yet.
    outstanding: AtomicUsize,
    over: AtomicBool,
}

/// Runs, and posts itself again.
fn flood(color: Color, load: Arc<Load>, spin: Spin) {
    let next = color.clone();
    color.post(move || {
        spin.run();
        load.inside.fetch_add(1, Relaxed);
        if !load.over.load(Relaxed) {
            flood(next, load, spin);
        }
    });
}

fn measure(trial: &Trial, spin: Spin, secs: f64) -> Result<Measured> {
    let runtime = trial.setting.set(dapple_io::runtime_builder().workers(1), trial.value).build()?;
    let entered = runtime.enter();
    let load = Arc::new(Load::default());
    let (colors, queued) = if trial.setting == Setting::TimeSlice { (4, 2_000) } else { (64, 1) };
    for color in (0..colors).map(|_| runtime.handle().new_color()) {
        (0..queued).for_each(|_| flood(color.clone(), load.clone(), spin));
    }
    let poster = (trial.setting == Setting::EventShare).then(|| post_from_outside(&runtime, &load, spin));
    let mut ours = echo(&runtime)?;
    // The worker learns the length of the callbacks meanwhile.
    thread::sleep(Duration::from_millis(50));
    let counts = || (load.inside.load(Relaxed), load.outside.load(Relaxed));
    let (before, begin) = (counts(), Instant::now());
    let mut round_trips = Vec::new();
    let mut pause_us = 100;
    while begin.elapsed().as_secs_f64() < secs {
        let mut byte = [round_trips.len() as u8];
        let sent = Instant::now();
        ours.write_all(&byte)?;
        ours.read_exact(&mut byte)?;
        round_trips.push(sent.elapsed().as_secs_f64() * 1e6);
        ensure!(byte == [(round_trips.len() - 1) as u8], "the answer belongs to another packet");
        // Packets arrive at any time of the worker's interval.
        pause_us = (pause_us * 7 + 13) % 400;
        thread::sleep(Duration::from_micros(pause_us));
    }
    let (after, secs) = (counts(), begin.elapsed().as_secs_f64());
    load.over.store(true, Relaxed);
    poster.map(|poster| poster.join().ok().context("the thread that posts panicked")).transpose()?;
    // The task at the other end ends with this one; after that, the runtime has no work left.
    drop((ours, entered));
    let left = runtime.shutdown(Duration::from_secs(10));
    ensure!(left.callbacks_dropped == 0, "{} callbacks did not run", left.callbacks_dropped);
    round_trips.sort_by(f64::total_cmp);
    let at = |part: f64| round_trips[((round_trips.len() - 1) as f64 * part) as usize];
    Ok(Measured {
        inside_per_s: (after.0 - before.0) as f64 / secs,
        outside_per_s: (after.1 - before.1) as f64 / secs,
        packets: round_trips.len(),
        p50_us: at(0.5),
        p99_us: at(0.99),
        checked: true,
        problem: None,
        ..failed(trial, String::new())
    })
}

/// The other end of a stream; a task returns its packets.
fn echo(runtime: &Runtime) -> Result<StdUnixStream> {
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_read_timeout(Some(Duration::from_secs(10)))?;
    theirs.set_nonblocking(true)?;
    let stream = UnixStream::from_std(theirs)?;
    drop(runtime.spawn(async move {
        let mut byte = [0];
        while stream.read(&mut byte).await.is_ok_and(|len| len == 1) {
            if stream.write_all(&byte).await.is_err() {
                break;
            }
        }
    }));
    Ok(ours)
}

/// A thread that always has [`OUTSTANDING`] callbacks queued, each in a separate color.
fn post_from_outside(runtime: &Runtime, load: &Arc<Load>, spin: Spin) -> thread::JoinHandle<()> {
    let colors: Vec<_> = (0..OUTSTANDING).map(|_| runtime.handle().new_color()).collect();
    let load = load.clone();
    thread::spawn(move || {
        for color in colors.iter().cycle() {
            while load.outstanding.load(Relaxed) >= OUTSTANDING {
                thread::yield_now();
            }
            if load.over.load(Relaxed) {
                break;
            }
            load.outstanding.fetch_add(1, Relaxed);
            let load = load.clone();
            color.post(move || {
                spin.run();
                load.outside.fetch_add(1, Relaxed);
                load.outstanding.fetch_sub(1, Relaxed);
            });
        }
    })
}

fn report(all: &[Measured], args: &Args) -> Report {
    let head = ["setting", "value", "inside K/s", "outside K/s", "packets/s", "p50 us", "p99 us", "checked"];
    let mut table = Table::new(&head);
    for &setting in Setting::value_variants() {
        for &value in setting.values() {
            let own: Vec<_> = all.iter().filter(|run| run.setting == setting && run.value == value).collect();
            if own.is_empty() {
                continue;
            }
            let of = |figure: fn(&Measured) -> f64| median(&own.iter().map(|run| figure(run)).collect::<Vec<_>>());
            table.row(vec![
                name(setting),
                value.to_string(),
                format!("{:.1}", of(|run| run.inside_per_s) / 1e3),
                format!("{:.1}", of(|run| run.outside_per_s) / 1e3),
                format!("{:.0}", of(|run| run.packets as f64) / args.secs),
                format!("{:.0}", of(|run| run.p50_us)),
                format!("{:.0}", of(|run| run.p99_us)),
                checked(own.iter().map(|run| run.checked)),
            ]);
        }
    }
    Report {
        runs: format!("{} of {} s each, {} ns of work per callback, one worker", args.runs, args.secs, args.work_ns),
        tables: vec![("A worker that is never idle, and one packet in flight".to_owned(), table)],
        legend: "Callbacks that post themselves again (inside) or come from a thread (outside); round trips of a packet. Medians.",
    }
}

/// Callbacks of the posting thread.
const OUTSTANDING: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_answered_beside_work_under_every_setting() {
        for &setting in Setting::value_variants() {
            for &value in setting.values() {
                // On a busy machine a short run may have no result: then the run is repeated for
                // longer.
                let runs = (0..12).map(|doubled| {
                    let trial = Trial { setting, value, run: 0 };
                    measure(&trial, Spin::of_rounds(100), 0.02 * f64::from(1 << doubled)).expect("it runs")
                });
                let outside = setting == Setting::EventShare;
                let served =
                    |run: &Measured| run.packets > 0 && run.inside_per_s > 0.0 && (run.outside_per_s > 0.0 || !outside);
                let measured = runs.into_iter().find(served).expect("one of them serves all");
                assert!(outside || measured.outside_per_s == 0.0, "{measured:?}");
            }
        }
    }
}
