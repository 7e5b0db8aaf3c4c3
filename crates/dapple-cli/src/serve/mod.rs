//! `dapple serve`: a web server in the structure of the papers' one (libasync-mp thesis, section 5.1).

use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::net::ToSocketAddrs;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use dapple::net::TcpListener;
use dapple::signal::{SIGINT, SIGTERM, Signal, signal};
use dapple::{Color, Runtime};
use tracing::warn;

use self::disk::Root;
use self::rules::Rules;
use self::site::{Site, SiteOptions};
use crate::config::Loaded;

pub(crate) use self::args::Args;
pub(crate) use self::error::ServeError;

mod accept;
mod answer;
mod args;
mod body;
mod check;
mod clock;
mod compress;
mod connection;
mod content_type;
mod counters;
mod disk;
mod error;
mod handles;
mod labels;
mod limits;
mod listing;
mod lru;
mod meta;
mod pages;
mod path;
mod pattern;
mod port_owner;
mod reply;
mod representation;
mod rules;
mod site;
mod status;
mod variants;

/// Serves until a signal says to stop, and then until what is in flight is finished; with `--check`, only looks whether it could.
///
/// # Errors
///
/// What kept the server from starting.
pub(crate) fn run(args: &Args, loaded: &Loaded) -> Result<(), ServeError> {
    let rules: Rules = loaded.sections.read()?;
    if args.check {
        return check::check(args, loaded);
    }
    let root = Root::open(&args.dir, args.files.follow).map_err(|error| ServeError::dir(&args.dir, error))?;
    let shares = limits::shares(args.limits.connections as usize);
    let mut builder = dapple::builder();
    if let Some(workers) = args.runtime.workers {
        builder = builder.workers(usize::from(workers));
    }
    let runtime = builder.build().map_err(ServeError::Runtime)?;
    let _entered = runtime.enter();

    let mut signals = watch_signals().map_err(ServeError::Runtime)?;
    let listener = listen(args)?;
    announce(args, &listener, runtime.handle().workers());

    let options = SiteOptions {
        cache_bytes: args.files.cache_mb << 20,
        files_max: shares.files,
        list: args.files.list,
        hidden: args.files.hidden,
        compress: !args.files.no_compress,
        rules,
        serial: args.runtime.serial,
        status: !args.runtime.no_status,
        limits: args.connection.limits(),
    };
    let site = Arc::new(Site::new(root, options, runtime.handle().clone()));
    drop(Color::DEFAULT.spawn(accept::accept(listener, site, shares)));

    runtime.block_on(next_of(&mut signals));
    end_at_once_on(signals);
    finish(runtime);
    Ok(())
}

/// Listens on the first address of the host that works.
fn listen(args: &Args) -> Result<TcpListener, ServeError> {
    let (host, port) = args.listen.host_and_port();
    let unknown = |error| ServeError::HostUnknown(host.to_owned(), error);
    let addrs = (host, port).to_socket_addrs().map_err(unknown)?;
    let mut problem = unknown(io::ErrorKind::NotFound.into());
    for addr in addrs {
        match TcpListener::bind(addr) {
            Ok(listener) => return Ok(listener),
            Err(error) => problem = ServeError::listen(addr, error),
        }
    }
    Err(problem)
}

/// Prints the one line on stdout. Scripts wait for it and read the port from it.
fn announce(args: &Args, listener: &TcpListener, workers: usize) {
    let addr = listener.local_addr().map(|addr| addr.to_string()).unwrap_or_else(|error| error.to_string());
    let noun = if workers == 1 { "worker" } else { "workers" };
    let note = if args.runtime.serial { ", all on the default color" } else { "" };
    let mut stdout = io::stdout().lock();
    let line = format!("dapple: serving {} on http://{addr} with {workers} {noun}{note}", args.dir.display());
    // A closed stdout is no reason not to serve.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// The signals that end the server, caught from now on.
fn watch_signals() -> io::Result<[Signal; 2]> {
    Ok([signal(SIGTERM)?, signal(SIGINT)?])
}

/// Waits until one of the signals comes.
async fn next_of([one, other]: &mut [Signal; 2]) {
    let (mut one, mut other) = (pin!(one.recv()), pin!(other.recv()));
    let either = poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => other.as_mut().poll(cx),
    });
    either.await;
}

/// Ends the process when one more signal comes. On a thread of its own, because the main thread waits for the runtime
/// meanwhile, and that waits for all its tasks.
fn end_at_once_on(mut signals: [Signal; 2]) {
    let watch = move || {
        dapple::wait(next_of(&mut signals));
        warn!("a second signal: ended at once");
        std::process::exit(EXIT_AT_ONCE);
    };
    // Without this thread the server still ends, only not at once.
    let _ = thread::Builder::new().name("dapple-signals".to_owned()).spawn(watch);
}

/// Accepting stops, idle connections close, the others do after their response.
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
