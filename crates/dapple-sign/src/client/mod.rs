//! `dapple sign-client`: a closed loop of tasks, like the client of the thesis (Gribble, Figure 7
//! and Appendix A.5).

mod args;
mod connection;
mod latency;
mod tally;

use std::io::{self, Write};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dapple::time::{sleep, sleep_until};
use dapple_serve::host::StopSignals;

pub use self::args::ClientArgs;
use self::connection::{Plan, connect, drive, shown};
use self::tally::Tally;
use super::digest::Secrets;
use super::error::SignError;
use dapple::task::{First, race};

/// Sends tasks for the requested time, or until SIGINT or SIGTERM, and prints the outcome. Returns
/// exit code 1 if a digest was wrong, or nothing was signed.
///
/// # Errors
///
/// The command line makes no sense, or no server answers.
pub fn run(args: &ClientArgs) -> Result<ExitCode, SignError> {
    let secrets = match args.verifies() {
        true => Some(Secrets::read(args.first_secret.as_deref(), args.second_secret.as_deref())?),
        false => None,
    };
    if args.connections > args.in_flight {
        let text = format!(
            "--connections {} for --in-flight {}: some connections would have no task",
            args.connections, args.in_flight
        );
        return Err(SignError::Misuse(text));
    }
    let runtime = dapple::builder().workers(usize::from(args.workers)).build().map_err(SignError::Runtime)?;
    let tally: Result<_, SignError> = runtime.block_on(async {
        find_servers(&args.addr).await?;
        let mut signals = StopSignals::watch().map_err(SignError::Runtime)?;
        Ok(measure(args, secrets, &mut signals).await)
    });
    runtime.shutdown(Duration::from_secs(1));
    let tally = tally?;
    let report = if args.json { tally.to_json(args) } else { tally.to_text(args) };
    // A closed stdout is no error.
    let _ = writeln!(io::stdout(), "{report}");
    Ok(if tally.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks which servers answer, and reports the others.
///
/// # Errors
///
/// No server answers.
async fn find_servers(addrs: &[(String, u16)]) -> Result<(), SignError> {
    let mut silent = Vec::new();
    for addr in addrs {
        if let Err(why) = connect(addr).await {
            silent.push(format!("no server answers at {}: {why}", shown(addr)));
        }
    }
    if silent.len() == addrs.len() {
        let example = addrs.first().map(shown).unwrap_or_default();
        let text = format!("{}; start one with `dapple sign --addr {example} …`", silent.join("; "));
        return Err(SignError::Client(text));
    }
    for text in silent {
        tracing::warn!("{text}; its tasks go to other servers until it answers");
    }
    Ok(())
}

async fn measure(args: &ClientArgs, secrets: Option<Secrets>, signals: &mut StopSignals) -> Arc<Tally> {
    let begin = Instant::now();
    let end = begin + args.secs;
    let tally = Arc::new(Tally::new(begin, end));
    let addrs = args.addr.clone();
    let plan = Arc::new(Plan { addrs, task_bytes: args.task_bytes, end, secrets, tally: tally.clone() });
    let driving: Vec<_> = (0..args.connections)
        .map(|number| {
            let slots = (args.in_flight + number) / args.connections;
            dapple::spawn(drive(plan.clone(), number, slots))
        })
        .collect();
    let aborts: Vec<_> = driving.iter().map(|one| one.abort_handle()).collect();
    let mut all = pin!(async {
        for one in driving {
            let _ = one.await;
        }
    });
    let watch = async {
        if args.quiet {
            return sleep_until(end + GRACE * 2).await;
        }
        let mut before = 0;
        while Instant::now() < end + GRACE * 2 {
            sleep(PROGRESS_EVERY).await;
            before = tally.show_progress(before);
        }
    };
    match race(all.as_mut(), race(watch, signals.next())).await {
        First::Left(()) => {}
        First::Right(First::Left(())) => tracing::warn!("some connections did not end in time"),
        First::Right(First::Right(())) => {
            tally.end_now();
            aborts.iter().for_each(|one| one.abort());
            all.await;
        }
    }
    tally
}

/// How long answers may take after the last task was sent.
pub(super) const GRACE: Duration = Duration::from_secs(10);

const PROGRESS_EVERY: Duration = Duration::from_secs(1);
