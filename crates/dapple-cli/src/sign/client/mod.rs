//! `dapple sign-client`: a closed loop of tasks, as the client of the thesis (Gribble, Figure 7 and Appendix A.5).

mod args;
mod connection;
mod latency;
mod tally;

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dapple::time::{sleep, sleep_until};

pub(crate) use self::args::ClientArgs;
use self::connection::{Plan, drive};
use self::tally::Tally;
use super::digest::Secrets;
use super::error::SignError;
use super::race::{First, race};

/// Sends tasks for as long as was asked, and prints what became of them. Exit code 1 where a digest was wrong, or nothing was signed.
///
/// # Errors
///
/// The command line makes no sense, or no server is there.
pub(crate) fn run(args: &ClientArgs) -> Result<ExitCode, SignError> {
    let secrets = match args.verifies() {
        true => Some(Secrets::read(args.first_secret.as_deref(), args.second_secret.as_deref())?),
        false => None,
    };
    if args.connections > args.in_flight {
        let text =
            format!("--connections {} for --in-flight {}: some would have no task", args.connections, args.in_flight);
        return Err(SignError::Misuse(text));
    }
    let addrs = args.addr.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
    for addr in &addrs {
        std::net::TcpStream::connect_timeout(addr, CONNECT_MAX).map_err(|error| {
            SignError::Client(format!(
                "no server answers at {addr}: {error}; start one with `dapple sign --addr {addr} …`"
            ))
        })?;
    }
    let runtime = dapple::builder().workers(usize::from(args.workers)).build().map_err(SignError::Runtime)?;
    let tally = runtime.block_on(measure(args, addrs, secrets));
    runtime.shutdown(Duration::from_secs(1));
    let report = if args.json { tally.to_json(args) } else { tally.to_text(args) };
    // Whoever has closed stdout does not want to know.
    let _ = writeln!(io::stdout(), "{report}");
    Ok(if tally.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(args: &ClientArgs, addrs: Vec<SocketAddr>, secrets: Option<Secrets>) -> Arc<Tally> {
    let begin = Instant::now();
    let end = begin + args.secs;
    let tally = Arc::new(Tally::new(begin, end));
    let plan = Arc::new(Plan { addrs, task_bytes: args.task_bytes, end, secrets, tally: tally.clone() });
    let driving: Vec<_> = (0..args.connections)
        .map(|number| {
            let slots = (args.in_flight + number) / args.connections;
            dapple::spawn(drive(plan.clone(), number, slots))
        })
        .collect();
    let all = async {
        for one in driving {
            let _ = one.await;
        }
    };
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
    if let First::Right(()) = race(all, watch).await {
        tracing::warn!("some connections did not end in time");
    }
    tally
}

fn resolve((host, port): &(String, u16)) -> Result<SocketAddr, SignError> {
    let found = (host.as_str(), *port).to_socket_addrs().ok().and_then(|mut addrs| addrs.next());
    found.ok_or_else(|| {
        SignError::Client(format!("there is no host {host:?}; give an address, such as 127.0.0.1:{port}"))
    })
}

/// How long answers may come after the last task was sent.
pub(super) const GRACE: Duration = Duration::from_secs(10);

const CONNECT_MAX: Duration = Duration::from_secs(5);

const PROGRESS_EVERY: Duration = Duration::from_secs(1);
