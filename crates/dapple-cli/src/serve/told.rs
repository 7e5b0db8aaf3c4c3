//! From options to the access log and the metrics.

use std::io;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Duration;

use dapple::net::TcpListener;
use dapple::signal::{SIGHUP, SIGUSR1, signal};
use dapple::time::sleep;
use dapple::{Color, Handle};

use super::args::ToldArgs;
use super::error::ServeError;
use super::metrics::SiteNumbers;
use super::site::Site;
use crate::observe::log::{Log, Writing};
use crate::observe::metrics::{Metrics, listener};
use crate::observe::{Observing, Sinks};

/// Opens the access log. What comes with it has it written, until it is dropped.
///
/// # Errors
///
/// Where the log cannot be opened.
pub(crate) fn open(args: &ToldArgs, handle: &Handle) -> Result<(Observing, Option<Writing>), ServeError> {
    let (log, writing) = match &args.access_log {
        None => (None, None),
        Some(path) => {
            let opened = Log::open(path, args.access_log_format, handle.workers());
            let (log, writing) = opened.map_err(|error| ServeError::AccessLog(path.clone(), error))?;
            (Some(log), Some(writing))
        }
    };
    let metrics = args.metrics.is_some().then(|| Metrics::new(handle.workers()));
    Ok((Observing::new(Sinks { handle: handle.clone(), log, metrics }), writing))
}

/// Begins to answer for metrics, and to open the log anew when a signal says so. A successor gets the address for metrics when the
/// process before it is gone: until then that one's numbers are those of interest.
///
/// # Errors
///
/// Where nobody can listen at the address for metrics.
pub(crate) fn begin(args: &ToldArgs, site: &Arc<Site>, is_successor: bool) -> Result<(), ServeError> {
    if site.observing.sinks().is_some_and(|sinks| sinks.log.is_some()) {
        for number in [SIGUSR1, SIGHUP] {
            let mut signal = signal(number).map_err(ServeError::Runtime)?;
            let observing = site.observing;
            let task = async move {
                loop {
                    signal.recv().await;
                    if let Some(log) = observing.sinks().and_then(|sinks| sinks.log.as_ref()) {
                        log.reopen();
                    }
                }
            };
            drop(Color::new().spawn_background(task));
        }
    }
    if let Some((host, port)) = &args.metrics {
        let failed = |error| ServeError::Metrics(host.clone(), *port, error);
        let numbers = Arc::new(SiteNumbers::new(site.clone()));
        let (host, port) = (host.clone(), *port);
        match listen(&host, port) {
            Ok(listener) => {
                listener::announce(&listener);
                drop(Color::new().spawn_background(listener::serve(listener, numbers)));
            }
            Err(error) if is_successor && error.kind() == io::ErrorKind::AddrInUse => {
                drop(Color::new().spawn_background(async move {
                    let listener = loop {
                        sleep(RETRY_PAUSE).await;
                        if let Ok(listener) = listen(&host, port) {
                            break listener;
                        }
                    };
                    listener::serve(listener, numbers).await;
                }));
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

/// Whether what the options name can be used.
///
/// # Errors
///
/// What cannot.
pub(crate) fn check(args: &ToldArgs) -> Result<(), ServeError> {
    if let Some(path) = &args.access_log {
        crate::observe::log::check(path).map_err(|error| ServeError::AccessLog(path.clone(), error))?;
    }
    if let Some((host, port)) = &args.metrics {
        let found = (host.as_str(), *port).to_socket_addrs();
        found.map_err(|error| ServeError::Metrics(host.clone(), *port, error))?;
    }
    Ok(())
}

/// Listens on the first address of the host that works.
fn listen(host: &str, port: u16) -> io::Result<TcpListener> {
    let mut problem = io::ErrorKind::NotFound.into();
    for addr in (host, port).to_socket_addrs()? {
        match TcpListener::bind(addr) {
            Ok(listener) => return Ok(listener),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// How often a successor tries to get the address for metrics.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
