//! Sets up the access log and the metrics from options.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dapple::insight::{self, PageError};
use dapple::net::TcpListener;
use dapple::signal::{SIGHUP, SIGUSR1, signal};
use dapple::time::sleep;
use dapple::{Color, Handle};

use super::args::{MetricsArgs, ToldArgs};
use super::log::{Log, Writing};
use super::metrics::listener::Numbers;
use super::metrics::{Metrics, listener};
use super::{Observing, Sinks};

/// The reason why requests cannot be reported, with a message that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ToldError {
    #[error("cannot open the access log {0:?} ({1}); give a file that can be written, or `-` for stdout")]
    AccessLog(PathBuf, #[source] io::Error),
    #[error("listening for metrics on {0}:{1} failed ({2}); choose another address with `--metrics HOST:PORT`")]
    Metrics(String, u16, #[source] io::Error),
    #[error("the page about this program at {0}:{1}: {2}; see `--insight HOST:PORT` and `--insight-token`")]
    Insight(String, u16, #[source] PageError),
    #[error("`--insight-token` has no use without `--insight HOST:PORT`, the address of the page that it protects")]
    TokenAlone,
    #[error("cannot catch the signals that reopen the access log: {0}")]
    Signals(#[source] io::Error),
}

/// Opens the access log. The returned owner keeps it written until dropped.
///
/// # Errors
///
/// The log cannot be opened.
pub(crate) fn open(args: &ToldArgs, handle: &Handle) -> Result<(Observing, Option<Writing>), ToldError> {
    let (log, writing) = match &args.access_log {
        None => (None, None),
        Some(path) => {
            let opened = Log::open(path, args.access_log_format, handle.workers());
            let (log, writing) = opened.map_err(|error| ToldError::AccessLog(path.clone(), error))?;
            (Some(log), Some(writing))
        }
    };
    let metrics = args.metrics.addr.is_some().then(|| Metrics::new(handle.workers()));
    Ok((Observing::new(Sinks { handle: handle.clone(), log, metrics }), writing))
}

/// Starts to serve metrics, and to reopen the log at a signal. A successor gets the metrics address
/// when the process before it has ended: until then, the metrics of that process matter.
///
/// # Errors
///
/// Listening at the metrics address failed.
pub(crate) fn begin<N: Numbers>(
    args: &ToldArgs,
    observing: Observing,
    numbers: Arc<N>,
    is_successor: bool,
) -> Result<(), ToldError> {
    if observing.sinks().is_some_and(|sinks| sinks.log.is_some()) {
        for number in [SIGUSR1, SIGHUP] {
            let mut signal = signal(number).map_err(ToldError::Signals)?;
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
    begin_metrics(&args.metrics, numbers, is_successor)
}

/// Starts to serve metrics, if the options say so.
///
/// # Errors
///
/// Listening at the metrics address failed.
pub(crate) fn begin_metrics<N: Numbers>(
    args: &MetricsArgs,
    numbers: Arc<N>,
    is_successor: bool,
) -> Result<(), ToldError> {
    begin_insight(args, is_successor)?;
    match args.insight.as_ref().filter(|_| args.addr.is_some()).and_then(|_| insight::watch().ok()) {
        Some(watch) => serve_metrics(args, Arc::new(Watched { numbers, watch }), is_successor),
        None => serve_metrics(args, numbers, is_successor),
    }
}

/// The metrics of a program, with its bottleneck.
struct Watched<N> {
    numbers: Arc<N>,
    watch: insight::Watch,
}

impl<N: Numbers> Numbers for Watched<N> {
    async fn collect(&self) -> String {
        self.numbers.collect().await + &self.watch.text()
    }
}

fn serve_metrics<N: Numbers>(args: &MetricsArgs, numbers: Arc<N>, is_successor: bool) -> Result<(), ToldError> {
    if let Some((host, port)) = &args.addr {
        let failed = |error| ToldError::Metrics(host.clone(), *port, error);
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

/// Starts to serve the live page, if the options say so; a successor as it does with the metrics.
fn begin_insight(args: &MetricsArgs, is_successor: bool) -> Result<(), ToldError> {
    begin_attachable();
    let Some((host, port)) = args.insight.clone() else {
        return if args.insight_token.is_some() { Err(ToldError::TokenAlone) } else { Ok(()) };
    };
    let token = args.insight_token.clone();
    let begin = move || insight::serve((host.as_str(), port), token.as_deref());
    match begin() {
        Ok(addr) => announce_insight(addr),
        Err(PageError::Listen(error)) if is_successor && error.kind() == io::ErrorKind::AddrInUse => {
            drop(Color::new().spawn_background(async move {
                while begin().is_err() {
                    sleep(RETRY_PAUSE).await;
                }
            }));
        }
        Err(error) => {
            let (host, port) = args.insight.clone().unwrap_or_default();
            return Err(ToldError::Insight(host, port, error));
        }
    }
    Ok(())
}

/// Lets tools of the same user attach. A program without that is of the same use.
pub(crate) fn begin_attachable() {
    if let Err(error) = insight::attachable() {
        tracing::debug!(%error, "`dapple top` and `dapple record` cannot attach to this process");
    }
}

fn announce_insight(addr: SocketAddr) {
    let mut stdout = io::stdout().lock();
    // A closed stdout must not stop the server.
    let _ = writeln!(stdout, "dapple: what holds this program back: http://{addr}/").and_then(|()| stdout.flush());
}

/// Checks whether the log and the address in the options can be used.
///
/// # Errors
///
/// The option that cannot be used.
pub(crate) fn check(args: &ToldArgs) -> Result<(), ToldError> {
    if let Some(path) = &args.access_log {
        crate::observe::log::check(path).map_err(|error| ToldError::AccessLog(path.clone(), error))?;
    }
    if let Some((host, port)) = &args.metrics.addr {
        let found = (host.as_str(), *port).to_socket_addrs();
        found.map_err(|error| ToldError::Metrics(host.clone(), *port, error))?;
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
