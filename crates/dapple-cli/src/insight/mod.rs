//! `dapple record`, `dapple report` and `dapple top`: which color holds a program back.

mod target;
#[cfg(feature = "top")]
mod top;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use dapple::insight::{AttachError, Change, LoadError, Recording, Waterfall};
use dapple_client::Error;

use self::target::{Page, Target};
#[cfg(feature = "top")]
pub(crate) use self::top::{TopArgs, top};

/// Record the callbacks of a running program
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: dapple serve site --insight 127.0.0.1:7777, then dapple record 127.0.0.1:7777 --secs 5"
)]
pub(crate) struct RecordArgs {
    /// The number of a process of the same user, or the address that it was given by --insight
    #[arg(value_name = "PID|HOST:PORT")]
    target: Target,

    /// The file to write; it is replaced
    #[arg(short, long, value_name = "FILE", default_value = "dapple.recording")]
    output: PathBuf,

    /// Seconds to record, 0.01 to 10
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    secs: f64,

    /// The token that the program was given by --insight-token
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
}

/// Show what a recording says: what bounds the program, and what would lift that bound
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dapple report dapple.recording --workers 4 --faster src/bank.rs:41=2")]
pub(crate) struct ReportArgs {
    /// A file of `dapple record`
    #[arg(value_name = "FILE")]
    recording: PathBuf,

    /// Print the snapshot as JSON
    #[arg(long, conflicts_with_all = ["html", "export"])]
    json: bool,

    /// Write a page for a browser, one file that needs no server
    #[arg(long, value_name = "FILE", conflicts_with = "export")]
    html: Option<PathBuf>,

    /// Print the recording for another program
    #[arg(long, value_name = "FORMAT")]
    export: Option<Export>,

    /// Print the steps of one request: a trace id of 32 hexadecimal digits, or `slowest`
    #[arg(long, value_name = "ID", value_parser = trace, conflicts_with_all = ["json", "html", "export"])]
    trace: Option<String>,

    /// A recording of another program that ran at the same time, for --trace; may be given several times
    #[arg(long, value_name = "FILE", requires = "trace")]
    with: Vec<PathBuf>,

    #[command(flatten)]
    what_if: WhatIf,
}

/// A prediction beside those of the usual numbers of workers
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What if")]
struct WhatIf {
    /// Predict the throughput with this many workers; default: as many as the program had
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// ... if the callbacks of this color took less time
    #[arg(long, value_name = "COLOR=TIMES", value_parser = faster)]
    faster: Vec<Change>,

    /// ... if this color were split
    #[arg(long, value_name = "COLOR=PARTS", value_parser = split)]
    split: Vec<Change>,

    /// ... if the states of this color were read instead of held
    #[arg(long, value_name = "COLOR")]
    readable: Vec<String>,
}

/// A format of other programs.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Export {
    /// For ui.perfetto.dev: a track for each worker
    Perfetto,
    /// For flame graphs: one line for each chain of causes
    Folded,
}

/// The reason why there is no recording or no report, with a message that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum InsightError {
    #[error("no program answers at {0} ({1}); start it with `--insight {0}`")]
    Connect(String, #[source] Error),
    #[error("the program has gone ({0})")]
    Gone(#[source] Error),
    #[error("{0}")]
    Attach(#[source] AttachError),
    #[cfg(feature = "top")]
    #[error(
        "`dapple top` draws in a terminal, and stdout is none: use `--once`, or `dapple record` and `dapple report`"
    )]
    NoTerminal,
    #[error("{0} refuses: {1}")]
    Refused(String, String),
    #[error("what {0} sent is no recording: {1}")]
    Sent(String, #[source] LoadError),
    #[error("cannot read {0:?} ({1}); make a recording with `dapple record HOST:PORT`")]
    Read(PathBuf, #[source] io::Error),
    #[error("{0:?}: {1}")]
    Load(PathBuf, #[source] LoadError),
    #[error("cannot write {0:?}: {1}")]
    Write(PathBuf, #[source] io::Error),
    #[error("{0:?} has no color {1:?}; these took most time: {2}")]
    NoColor(PathBuf, String, String),
    #[error("{0:?} has no whole request of trace {1}; record while requests are answered")]
    NoTrace(PathBuf, String),
    #[error("starting the runtime failed: {0}")]
    Runtime(#[source] io::Error),
    #[error("printing failed: {0}")]
    Print(#[source] io::Error),
}

impl InsightError {
    /// Whether the command line makes no sense.
    pub(crate) fn is_misuse(&self) -> bool {
        matches!(self, InsightError::NoColor(..) | InsightError::NoTrace(..))
    }
}

/// Records a program, and writes the file once all of it has come.
pub(crate) fn record(args: &RecordArgs) -> Result<(), InsightError> {
    let page = Page::open(&args.target, args.token.clone(), Duration::from_secs_f64(args.secs) + ANALYSIS_MAX)?;
    let runtime = dapple::builder().workers(1).build().map_err(InsightError::Runtime)?;
    let path = format!("/recording?ms={:.0}", args.secs * 1e3);
    let file = runtime.block_on(runtime.spawn(async move { page.ask(&path).await }));
    let file = file.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    let recording = Recording::load(&file[..]).map_err(|error| InsightError::Sent(args.target.to_string(), error))?;
    write_whole(&args.output, &file)?;
    eprintln!("{}", recording.snapshot().verdict);
    println!("wrote {}; `dapple report {0}` shows it", args.output.display());
    Ok(())
}

/// Replaces the file in one step, so that a full disk leaves the former one.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), InsightError> {
    let failed = |error| InsightError::Write(path.to_owned(), error);
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    fs::write(&part, bytes).and_then(|()| fs::rename(&part, path)).map_err(|error| {
        let _ = fs::remove_file(&part);
        failed(error)
    })
}

fn load(path: &Path) -> Result<Recording, InsightError> {
    let file = File::open(path).map_err(|error| InsightError::Read(path.to_owned(), error))?;
    Recording::load(io::BufReader::new(file)).map_err(|error| InsightError::Load(path.to_owned(), error))
}

/// Shows a recording.
pub(crate) fn report(args: &ReportArgs) -> Result<(), InsightError> {
    let path = &args.recording;
    let recording = load(path)?;
    if let Some(trace) = &args.trace {
        let others = args.with.iter().map(|path| load(path)).collect::<Result<Vec<_>, _>>()?;
        let all: Vec<Recording> = std::iter::once(recording).chain(others).collect();
        let waterfall = Waterfall::of(&all, Some(&**trace).filter(|trace| *trace != SLOWEST));
        let waterfall = waterfall.ok_or_else(|| InsightError::NoTrace(path.clone(), trace.clone()))?;
        return write!(io::stdout(), "{waterfall}").map_err(InsightError::Print);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    match args.export {
        Some(Export::Perfetto) => return recording.write_perfetto(out).map_err(InsightError::Print),
        Some(Export::Folded) => return recording.write_folded(out).map_err(InsightError::Print),
        None => {}
    }
    let snapshot = recording.snapshot();
    let changes = args.what_if.changes();
    for change in &changes {
        let name = named(change);
        if !snapshot.families.iter().any(|family| family.name == name) {
            let known: Vec<&str> = snapshot.families.iter().take(5).map(|family| &*family.name).collect();
            return Err(InsightError::NoColor(path.clone(), name.to_owned(), known.join(", ")));
        }
    }
    if let Some(html) = &args.html {
        return write_whole(html, snapshot.html().as_bytes());
    }
    let text = if args.json {
        serde_json::to_string(&snapshot).expect("numbers and names") + "\n"
    } else {
        snapshot.to_string()
    };
    out.write_all(text.as_bytes()).map_err(InsightError::Print)?;
    if !args.json && (args.what_if.workers.is_some() || !changes.is_empty()) {
        let workers = args.what_if.workers.map_or(recording.workers(), usize::from);
        let rate = recording.predict(workers, &changes).speedup;
        let word = if workers == 1 { "worker" } else { "workers" };
        writeln!(out, "\nwhat if: with {workers} {word}{} the rate is {rate:.2} times as high", said(&changes))
            .map_err(InsightError::Print)?;
    }
    out.flush().map_err(InsightError::Print)
}

impl WhatIf {
    fn changes(&self) -> Vec<Change> {
        let readable = self.readable.iter().map(|family| Change::Readable { family: family.clone() });
        self.faster.iter().chain(&self.split).cloned().chain(readable).collect()
    }
}

fn named(change: &Change) -> &str {
    match change {
        Change::Faster { family, .. } | Change::Split { family, .. } | Change::Readable { family } => family,
        _ => "",
    }
}

fn said(changes: &[Change]) -> String {
    let one = |change: &Change| match change {
        Change::Faster { family, times } => format!("{family} {times} times as fast"),
        Change::Split { family, parts } => format!("{family} split in {parts}"),
        Change::Readable { family } => format!("{family} read"),
        _ => String::new(),
    };
    match changes {
        [] => String::new(),
        changes => format!(" and {}", changes.iter().map(one).collect::<Vec<_>>().join(", ")),
    }
}

fn trace(text: &str) -> Result<String, String> {
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_id || text == SLOWEST {
        true => Ok(text.to_ascii_lowercase()),
        false => Err("write `slowest`, or the 32 digits of a trace, as `dapple report --json` lists them".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let secs: f64 = text.parse().map_err(|_| "write a number of seconds, such as 5".to_owned())?;
    if (0.01..=10.0).contains(&secs) { Ok(secs) } else { Err("choose a number from 0.01 to 10".to_owned()) }
}

fn faster(text: &str) -> Result<Change, String> {
    let advice = || "write a color of the report and a factor, such as src/bank.rs:41=2".to_owned();
    let (family, times) = text.rsplit_once('=').ok_or_else(advice)?;
    let times: f64 = times.parse().map_err(|_| advice())?;
    if !(times.is_finite() && times > 0.0) {
        return Err(advice());
    }
    Ok(Change::Faster { family: family.to_owned(), times })
}

fn split(text: &str) -> Result<Change, String> {
    let advice =
        || "write a color of the report and a number of parts from 2 to 64, such as src/bank.rs:41=4".to_owned();
    let (family, parts) = text.rsplit_once('=').ok_or_else(advice)?;
    let parts = parts.parse().ok().filter(|parts| (2..=64).contains(parts)).ok_or_else(advice)?;
    Ok(Change::Split { family: family.to_owned(), parts })
}

/// The word for the slowest request.
const SLOWEST: &str = "slowest";

/// A busy program with many callbacks takes a while to write its recording.
const ANALYSIS_MAX: Duration = Duration::from_secs(60);
