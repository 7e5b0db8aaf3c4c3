//! `dapple proxy --to URL[,URL…]`: a reverse proxy in front of your own servers.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use dapple::Color;
use dapple::tls::{CertificateFiles, TlsConnector};

use self::front::Front;
use self::metrics::ReverseNumbers;
use self::reload::Reload;
use self::reverse::Reverse;
use self::upstream::trusting;
use super::args::Args;
use super::error::ProxyError;
use crate::config::Loaded;
use crate::observe::told;
use crate::server::{
    Admission, AdmissionLimits, CertificateSource, Listening, Manager, Predecessor, Signals, Tls, Upgrade,
    connection_limits, finish, give_back, listen, watch,
};

pub(crate) use self::args::ReverseArgs;
pub(super) use self::misuse::belongs_together;

mod address;
mod args;
mod check;
mod common;
mod exchange;
mod failure;
mod forwarded;
mod front;
mod list;
mod metrics;
mod misuse;
mod reload;
mod replay;
mod request;
#[allow(clippy::module_inception, reason = "the proxy to which the other parts belong")]
mod reverse;
mod service;
mod source;
mod target;
mod upstream;

/// Serves until a signal says to stop, then finishes what is in flight; with `--check`, only checks
/// whether it could start.
///
/// # Errors
///
/// The reason why the proxy did not start.
pub(super) fn run(args: &Args, loaded: &Loaded) -> Result<(), ProxyError> {
    if args.check {
        return check::check(args, loaded);
    }
    let encryption = encryption(args)?;
    let source = certificates(args)?;
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
    let tls = source.map(Tls::new).transpose()?;
    let mut predecessor = Predecessor::find().map_err(ProxyError::Runtime)?;
    let all_listening = listen(&args.listen.wanted(), &args.listen.wanted_by_default(true), predecessor.as_mut())?;
    let addrs: Vec<SocketAddr> = all_listening.iter().filter_map(Listening::addr).collect();

    // Each request of a client may need a connection to an upstream.
    let shares = args.limits.shares(2);
    let admission = Arc::new(Admission::new(shares.connections, args.limits.per_address(shares.connections)));
    drop(Color::new().spawn_background(give_back(admission.clone())));
    let reverse = Arc::new(Reverse::new(args, encryption, admission.clone(), observing, runtime.handle().clone()));
    let limits = connection_limits(&args.connection);
    let mut front = Front::new(reverse.clone(), tls.clone(), limits, shares.is_short);
    for listening in all_listening {
        front.open(listening).map_err(ProxyError::Runtime)?;
    }
    announce(&reverse, &addrs, tls.as_deref(), args.cache.mb(true), runtime.handle().workers());
    told::begin(&args.told, observing, Arc::new(ReverseNumbers::new(reverse.clone())), predecessor.is_some())?;
    let manager = Manager::find();
    if let Some(predecessor) = predecessor {
        predecessor.tell_ready();
    }
    manager.ready();
    let mut reload = Reload { reverse, first: loaded.clone(), tls };
    let begin = runtime.block_on(async {
        let (ending, begin) = watch(signals, upgrade, &manager, front.gate(), async || reload.run().await).await;
        front.finish(ending).await;
        begin
    });
    finish(runtime, args.limits.drain().saturating_sub(begin.elapsed()), &admission);
    // The last lines of the log are those of the replies that were just finished.
    drop(writing);
    Ok(())
}

/// The TLS connector for upstreams. Blocks.
fn encryption(args: &Args) -> Result<TlsConnector, ProxyError> {
    let authorities = args.reverse.upstream_ca.as_deref();
    let failed = |why| ProxyError::Authorities(authorities.map(ToOwned::to_owned).unwrap_or_default(), why);
    trusting(authorities).map_err(failed)
}

/// The source of certificates for clients; `None` without TLS.
fn certificates(args: &Args) -> Result<Option<CertificateSource>, ProxyError> {
    let (chains, keys) = (&args.reverse.tls.tls_cert, &args.reverse.tls.tls_key);
    if chains.len() != keys.len() {
        let (chains, keys) = (chains.len(), keys.len());
        return Err(ProxyError::Misuse(format!(
            "there are {chains} of --tls-cert and {keys} of --tls-key; give a key for each certificate, in the same \
            order"
        )));
    }
    if args.reverse.tls.tls_self_signed {
        return Ok(Some(CertificateSource::SelfSigned(SELF_SIGNED.map(str::to_owned).to_vec())));
    }
    let pairs = chains.iter().cloned().zip(keys.iter().cloned());
    let files: Vec<CertificateFiles> = pairs.map(|(chain, key)| CertificateFiles { chain, key }).collect();
    Ok((!files.is_empty()).then_some(CertificateSource::Files(files)))
}

/// Prints the one line on stdout. Scripts wait for it and read the port from it.
fn announce(reverse: &Reverse, addrs: &[SocketAddr], tls: Option<&Tls>, cache_mb: u64, workers: usize) {
    let noun = if workers == 1 { "worker" } else { "workers" };
    let note = if reverse.common.serial { ", all on the default color" } else { "" };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let addrs: Vec<String> = addrs.iter().map(|addr| format!("{scheme}://{addr}")).collect();
    let upstreams = reverse.list.all();
    let upstreams: Vec<&str> = upstreams.iter().map(|upstream| &*upstream.name).collect();
    let (addrs, upstreams) = (addrs.join(" and "), upstreams.join(" and "));
    let cache = if cache_mb > 0 { format!("{cache_mb} MiB of cache and ") } else { String::new() };
    let mut stdout = io::stdout().lock();
    // A closed stdout must not stop the server.
    let _ = writeln!(stdout, "dapple: proxy on {addrs} to {upstreams} with {cache}{workers} {noun}{note}");
    if let Some(fingerprint) = tls.and_then(Tls::self_signed_fingerprint) {
        let _ = writeln!(stdout, "dapple: the certificate is self-signed; its SHA-256 is {fingerprint}");
    }
    let _ = stdout.flush();
}

/// The names for trying a proxy on this machine.
const SELF_SIGNED: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
