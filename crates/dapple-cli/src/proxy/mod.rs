//! `dapple proxy`: a forward proxy with one cache for all clients, which grew out of the papers'
//! example; with `--to`, a reverse proxy.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use dapple::Color;

use self::check::NoTables;
use self::front::Front;
use self::metrics::ProxyNumbers;
use self::proxy::Proxy;
use self::rules::Rules;
use crate::config::Loaded;
use crate::observe::told;
use crate::server::{
    Admission, AdmissionLimits, Listening, Manager, Predecessor, Signals, Upgrade, connection_limits, finish,
    give_back, listen, watch,
};

pub(crate) use self::args::Args;
pub(crate) use self::error::ProxyError;

mod answer;
mod args;
mod cache;
mod check;
mod destination;
mod error;
mod failure;
mod fields;
mod front;
mod hints;
mod lookup;
mod metrics;
#[allow(clippy::module_inception, reason = "the proxy to which the other parts belong")]
mod proxy;
mod reply;
mod reverse;
mod rules;
mod source;
mod status;
mod tally;
mod tunnel;
mod upstream;

/// Serves until a signal says to stop, then finishes what is in flight; with `--check`, only checks
/// whether it could start.
///
/// # Errors
///
/// The reason why the proxy did not start.
pub(crate) fn run(args: &Args, loaded: &Loaded) -> Result<(), ProxyError> {
    let NoTables {} = loaded.sections.read()?;
    reverse::belongs_together(args, loaded)?;
    if !args.reverse.to.is_empty() {
        return reverse::run(args, loaded);
    }
    if args.check {
        return check::check(args, loaded);
    }
    let mut builder = dapple::builder();
    if let Some(workers) = args.runtime.workers {
        builder = builder.workers(usize::from(workers));
    }
    let runtime = builder.build().map_err(ProxyError::Runtime)?;
    let _entered = runtime.enter();
    drop(Color::new().spawn_background(crate::http::clock::beat()));
    let signals = Signals::watch().map_err(ProxyError::Runtime)?;
    let upgrade = Upgrade::new();
    let (observing, writing) = told::open(&args.told, runtime.handle())?;
    let mut predecessor = Predecessor::find().map_err(ProxyError::Runtime)?;
    let all_listening = listen(&args.listen.wanted(), &args.listen.wanted_by_default(false), predecessor.as_mut())?;
    let addrs: Vec<SocketAddr> = all_listening.iter().filter_map(Listening::addr).collect();
    addrs.iter().try_for_each(|addr| args.allow.may_listen(*addr))?;

    // Each connection of a client may need one to an origin.
    let shares = args.limits.shares(2);
    let admission = Arc::new(Admission::new(shares.connections, args.limits.per_address(shares.connections)));
    drop(Color::new().spawn_background(give_back(admission.clone())));
    let rules = Rules::new(args.allow.allow_private, &args.allow.allow_destination, &args.allow.connect_port, &addrs);
    let proxy = Arc::new(Proxy::new(args, rules, admission.clone(), shares.files, observing, runtime.handle().clone()));
    let limits = connection_limits(&args.connection);
    let mut front = Front::new(proxy.clone(), args.allow.allow_clients.clone(), limits, shares.is_short);
    for listening in all_listening {
        front.open(listening).map_err(ProxyError::Runtime)?;
    }
    announce(args, &addrs, runtime.handle().workers());
    told::begin(&args.told, observing, Arc::new(ProxyNumbers::new(proxy)), predecessor.is_some())?;
    let manager = Manager::find();
    if let Some(predecessor) = predecessor {
        predecessor.tell_ready();
    }
    manager.ready();
    let begin = runtime.block_on(async {
        // A separate task reopens the access log; nothing else needs a reload.
        let (ending, begin) = watch(signals, upgrade, &manager, front.gate(), async || {}).await;
        front.finish(ending).await;
        begin
    });
    finish(runtime, args.limits.drain().saturating_sub(begin.elapsed()), &admission);
    // The last lines of the log are those of the replies that were just finished.
    drop(writing);
    Ok(())
}

/// Prints the one line on stdout. Scripts wait for it and read the port from it.
fn announce(args: &Args, addrs: &[SocketAddr], workers: usize) {
    let noun = if workers == 1 { "worker" } else { "workers" };
    let note = if args.runtime.serial { ", all on the default color" } else { "" };
    let addrs: Vec<String> = addrs.iter().map(|addr| format!("http://{addr}")).collect();
    let (addrs, cache_mb) = (addrs.join(" and "), args.cache.mb(false));
    let mut stdout = io::stdout().lock();
    let line = format!("dapple: proxy on {addrs} with {cache_mb} MiB of cache and {workers} {noun}{note}");
    // A closed stdout must not stop the server.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
