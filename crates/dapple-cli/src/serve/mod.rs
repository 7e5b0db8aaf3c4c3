//! `dapple serve`: a web server with the structure of the papers' server (libasync-mp thesis,
//! section 5.1).

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use dapple::Color;
use dapple_serve::command_line::limits;
use http::HeaderValue;

use self::disk::Root;
use self::front::{Front, Manner};
use self::metrics::SiteNumbers;
use self::reload::Reload;
use self::rules::Rules;
use self::site::{Site, SiteOptions};
use crate::config::Loaded;
use crate::observe::told;
use crate::server::{
    Admission, AdmissionLimits, Listening, Manager, MemoryLimit, Predecessor, Signals, Tls, Upgrade, Wanted,
    connection_limits, finish, give_back, listen, watch,
};

pub(crate) use self::args::Args;
pub(crate) use self::error::ServeError;

mod answer;
mod args;
mod at_once;
mod body;
mod check;
mod clock;
mod compress;
mod connection;
mod content_type;
mod counters;
mod disk;
mod error;
mod front;
mod handles;
mod hot;
mod html;
#[cfg(feature = "http3")]
mod http3;
mod labels;
mod library;
mod listing;
mod loading;
mod looks;
mod memory;
mod meta;
mod metrics;
mod pages;
mod path;
mod pattern;
mod redirect;
mod reload;
mod reply;
mod representation;
mod rules;
mod site;
mod status;
mod variants;

/// Serves until a signal says to stop, then finishes what is in flight; with `--check`, only checks
/// whether it could start.
///
/// # Errors
///
/// The reason why the server did not start.
pub(crate) fn run(args: &Args, loaded: &Loaded) -> Result<(), ServeError> {
    let rules: Rules = loaded.sections.read()?;
    if args.check {
        return check::check(args, &rules, loaded);
    }
    let root = Root::open(&args.dir, args.files.follow).map_err(|error| ServeError::dir(&args.dir, error))?;
    let shares = args.limits.shares(1);
    let mut builder = dapple::builder();
    if let Some(workers) = args.runtime.workers {
        builder = builder.workers(usize::from(workers));
    }
    let (builder, network) = args.listen.net.open(builder).map_err(ServeError::Runtime)?;
    let runtime = builder.build().map_err(ServeError::Runtime)?;
    let _entered = runtime.enter();

    let signals = Signals::watch().map_err(ServeError::Runtime)?;
    let upgrade = Upgrade::new();
    let (observing, writing) = told::open(&args.told, runtime.handle())?;
    let memory_limit = MemoryLimit::find(args.limits.bytes_given(&limits::MEMORY_LIMIT));
    let admission = Arc::new(Admission::new(shares.connections, args.limits.per_address(shares.connections)));
    let options = SiteOptions {
        cache_bytes: memory::cache_bytes(args.files.cache_mb, memory_limit.as_ref()),
        files_max: shares.files,
        serial: args.runtime.serial,
        status: !args.runtime.no_status,
        list: args.files.list,
        hidden: args.files.hidden,
        compress: !args.files.no_compress,
        rules,
        limits: connection_limits(&args.connection),
        observing,
        admission,
        looks: args.looks(),
    };
    let site = Arc::new(Site::new(root, options, runtime.handle().clone()));
    drop(Color::new().spawn_background(crate::http::clock::beat()));
    drop(Color::new().spawn_background(give_back(site.admission.clone())));
    if let Some(limit) = memory_limit {
        drop(Color::new().spawn_background(memory::watch(site.clone(), limit)));
    }
    let tls = args.tls.source(&args.listen)?.map(Tls::new).transpose()?;
    let mut predecessor = Predecessor::find().map_err(ServeError::Runtime)?;
    let mut front = Front::new(site.clone(), shares.is_short);
    open(args, &mut front, predecessor.as_mut(), tls.as_ref())?;
    announce(args, &front, runtime.handle().workers(), tls.as_deref());
    let numbers = Arc::new(SiteNumbers::new(site.clone(), network.clone()));
    told::begin(&args.told, observing, numbers, predecessor.is_some())?;
    let manager = Manager::find();
    if let Some(predecessor) = predecessor {
        predecessor.tell_ready();
    }
    manager.ready();
    let drain = args.limits.drain();
    let mut reload = Reload { site, first: loaded.clone(), tls, drain };
    let (begin, admission) = runtime.block_on(async {
        let (ending, begin) = watch(signals, upgrade, &manager, front.gate(), async || reload.run(&front).await).await;
        let admission = front.finish(ending).await;
        network.delivered(reload.drain.saturating_sub(begin.elapsed())).await;
        (begin, admission)
    });
    finish(runtime, reload.drain.saturating_sub(begin.elapsed()), &admission);
    // The log ends with the lines of the replies that just finished.
    drop(writing);
    Ok(())
}

/// Opens all sockets, those that redirect last, when their target is known.
fn open(
    args: &Args,
    front: &mut Front,
    predecessor: Option<&mut Predecessor>,
    tls: Option<&Arc<Tls>>,
) -> Result<(), ServeError> {
    let may_wait = predecessor.is_some();
    let wanted: Vec<Wanted> = args.listen.wanted().into_iter().chain(args.tls.redirect()).collect();
    let listening = listen(&wanted, &args.listen.wanted_by_default(), predecessor)?;
    let (redirecting, serving): (Vec<_>, Vec<_>) = listening.into_iter().partition(Listening::is_redirect);
    for listening in serving {
        let manner = match tls {
            Some(tls) => Manner::Tls(tls.clone(), open_http3(args, front, &listening, tls, may_wait)?),
            None => Manner::Plain,
        };
        front.open(listening, manner).map_err(ServeError::Runtime)?;
    }
    let port = front.addrs().first().map_or(443, SocketAddr::port);
    for listening in redirecting {
        front.open(listening, Manner::Redirect(port)).map_err(ServeError::Runtime)?;
    }
    Ok(())
}

/// Serves HTTP/3 at the address of a socket, if enabled; returns the announcement for replies over
/// TLS.
#[cfg(feature = "http3")]
fn open_http3(
    args: &Args,
    front: &mut Front,
    listening: &Listening,
    tls: &Arc<Tls>,
    may_wait: bool,
) -> Result<Option<HeaderValue>, ServeError> {
    let Some(addr) = listening.addr().filter(|_| args.tls.http3) else { return Ok(None) };
    let binding = http3::Binding { is_shared: args.listen.reuse_port, may_wait };
    front.open_http3(addr, tls, binding).map_err(|error| ServeError::Http3(addr, error))
}

/// Does nothing in a build without HTTP/3, in which the options have been refused.
#[cfg(not(feature = "http3"))]
fn open_http3(
    _: &Args,
    _: &mut Front,
    _: &Listening,
    _: &Arc<Tls>,
    _may_wait: bool,
) -> Result<Option<HeaderValue>, ServeError> {
    Ok(None)
}

/// Prints the one line on stdout. Scripts wait for it and read the port from it.
fn announce(args: &Args, front: &Front, workers: usize, tls: Option<&Tls>) {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let addrs: Vec<String> = front.addrs().iter().map(|addr| format!("{scheme}://{addr}")).collect();
    let redirects: String = front.redirects().iter().map(|addr| format!(", redirecting from http://{addr}")).collect();
    let noun = if workers == 1 { "worker" } else { "workers" };
    let note = if args.runtime.serial { ", all on the default color" } else { "" };
    let mut stdout = io::stdout().lock();
    let (dir, addrs) = (args.dir.display(), addrs.join(" and "));
    let line = format!("dapple: serving {dir} on {addrs} with {workers} {noun}{note}{redirects}");
    // A closed stdout must not stop the server.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if let Some(fingerprint) = tls.and_then(Tls::self_signed_fingerprint) {
        eprintln!(
            "dapple: the certificate is self-signed, for trying things out; browsers warn about it. Its SHA-256 \
            is\n{fingerprint}"
        );
    }
}
