//! `dapple proxy`: a forward proxy with one cache for all clients, the papers' own example grown up.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dapple::net::TcpListener;
use dapple::{Color, Runtime};
use tracing::warn;

use self::proxy::Proxy;
use self::rules::Rules;
use crate::serve;
use crate::server::{Command, ListenError, Signals, Wanted};

pub(crate) use self::args::Args;
pub(crate) use self::error::ProxyError;

mod accept;
mod answer;
mod args;
mod cache;
mod clock;
mod error;
mod failure;
mod fields;
mod lookup;
#[allow(clippy::module_inception, reason = "the one thing that the others are about")]
mod proxy;
mod reply;
mod rules;
mod status;
mod tally;
mod tunnel;
mod upstream;

/// Serves until a signal says to stop, and then until what is in flight is finished.
///
/// # Errors
///
/// What kept the proxy from starting.
pub(crate) fn run(args: &Args) -> Result<(), ProxyError> {
    let mut builder = dapple::builder();
    if let Some(workers) = args.workers {
        builder = builder.workers(usize::from(workers));
    }
    let runtime = builder.build().map_err(ProxyError::Runtime)?;
    let _entered = runtime.enter();
    drop(Color::new().spawn_background(crate::http::clock::beat()));
    let mut signals = Signals::watch().map_err(ProxyError::Runtime)?;
    let listener = listen(args)?;
    let addr = listener.local_addr().map_err(ProxyError::Runtime)?;

    // Each connection of a client may need one to an origin.
    let shares = serve::limits::shares(2 * args.connections as usize);
    let connections_max = (shares.connections / 2).max(1);
    let mut rules = Rules::new(args.allow_private, &args.allow_destination, &args.connect_port);
    rules.set_own(addr);
    announce(args, addr, runtime.handle().workers());
    let proxy = Arc::new(Proxy::new(args, rules, 2 * connections_max, runtime.handle().clone()));
    drop(Color::DEFAULT.spawn(accept::accept(listener, proxy, args.allow_clients.clone(), connections_max)));
    runtime.block_on(until_stop(&mut signals));
    end_at_once_on(signals);
    finish(runtime);
    Ok(())
}

/// Listens on the first address of the host that works, if it is known for whom.
fn listen(args: &Args) -> Result<TcpListener, ProxyError> {
    let (host, port) = args.host_and_port();
    let wanted = Wanted { host: host.to_owned(), port, reuse_port: false, redirects: false };
    let mut problem = None;
    for addr in wanted.addrs()? {
        if !addr.ip().is_loopback() && args.allow_clients.is_empty() {
            return Err(ProxyError::Open(addr));
        }
        match TcpListener::bind(addr) {
            Ok(listener) => return Ok(listener),
            Err(error) => problem = Some(ListenError::at(addr, error)),
        }
    }
    Err(problem.map_or_else(|| ProxyError::Runtime(io::ErrorKind::NotFound.into()), ProxyError::Listen))
}

/// Prints the one line on stdout. Scripts wait for it and read the port from it.
fn announce(args: &Args, addr: SocketAddr, workers: usize) {
    let noun = if workers == 1 { "worker" } else { "workers" };
    let note = if args.serial { ", all on the default color" } else { "" };
    let mut stdout = io::stdout().lock();
    let line = format!("dapple: proxy on http://{addr} with {} MiB of cache and {workers} {noun}{note}", args.cache_mb);
    // A closed stdout is no reason not to serve.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// Waits until a signal says to end. There is nothing to read again, and nothing to hand over.
async fn until_stop(signals: &mut Signals) {
    while signals.next().await != Command::Stop {}
}

/// Ends the process when one more signal comes. On a thread of its own, because the main thread waits for the runtime meanwhile, and
/// that waits for all its tasks.
fn end_at_once_on(mut signals: Signals) {
    let watch = move || {
        dapple::wait(until_stop(&mut signals));
        warn!("a second signal: ended at once");
        std::process::exit(EXIT_AT_ONCE);
    };
    // Without this thread the proxy still ends, only not at once.
    let _ = thread::Builder::new().name("dapple-signals".to_owned()).spawn(watch);
}

/// Accepting stops, idle connections and tunnels close, the others do after their response.
fn finish(runtime: Runtime) {
    let report = runtime.shutdown(FINISH_MAX);
    if report.tasks_dropped > 0 {
        warn!(unfinished = report.tasks_dropped, "not everything in flight was finished in {FINISH_MAX:?}");
    }
}

/// How long responses in flight may take after the signal. With what stopping takes, the process is gone within 10 s.
const FINISH_MAX: Duration = Duration::from_secs(9);

/// What a shell reports for a program that Ctrl-C ended.
const EXIT_AT_ONCE: i32 = 130;
