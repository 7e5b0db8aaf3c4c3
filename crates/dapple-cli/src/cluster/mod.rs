//! `dapple host` and `dapple cluster`: which replicas of which service run on which machine.

mod args;
mod error;
mod numbers;
mod page;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dapple::signal::{SIGINT, SIGTERM, Signal, signal};
use dapple::task::race;
use dapple::{Color, Handle};
use dapple_cluster::record::{Event, Service};
use dapple_cluster::{Directory, Host, HostSettings, Summary};
use dapple_serve::host::{Wanted, listen};
use tracing::warn;

use self::args::Action;
pub(crate) use self::args::{ClusterArgs, HostArgs};
pub(crate) use self::error::ClusterError;
use self::numbers::HostNumbers;
use self::page::Page;
use crate::config::Loaded;
use crate::observe::told::begin_metrics;

/// Runs a host until a signal says to stop.
///
/// # Errors
///
/// See [`ClusterError`].
pub(crate) fn run_host(args: &HostArgs, loaded: &Loaded) -> Result<(), ClusterError> {
    if args.check {
        // With a closed stdout, the exit code still tells the result.
        let _ = io::stdout().lock().write_all(loaded.show().as_bytes());
        return Ok(());
    }
    let mut builder = dapple::builder();
    if let Some(workers) = args.workers {
        builder = builder.workers(usize::from(workers));
    }
    let runtime = builder.build().map_err(ClusterError::Runtime)?;
    runtime.block_on(host(args))
}

async fn host(args: &HostArgs) -> Result<(), ClusterError> {
    // Before anything is registered: a signal at once must not leave an entry.
    let signals = [SIGTERM, SIGINT].map(|number| signal(number).map_err(ClusterError::Runtime));
    let [term, int] = signals;
    let (mut term, mut int) = (term?, int?);
    let place = args.join.clone().ok_or(ClusterError::NoPlace)?;
    let directory = Directory::new(place.clone());
    if args.address.is_unspecified() {
        return Err(ClusterError::Unspecified(args.address));
    }
    let name = args.name.clone().unwrap_or_else(own_name);
    let settings = HostSettings {
        state: args.state.clone().map_or_else(|| usual_state(&name), Ok)?,
        name: name.clone(),
        address: args.address,
        cores: args.cores.map(f64::from),
        memory_mb: args.memory_mb,
        ttl: Duration::from_secs(args.ttl_s),
        drain: Duration::from_secs(args.move_s),
    };
    let host = Arc::new(Host::new(directory.clone(), settings)?);
    if let Some((name, port)) = &args.page {
        serve_page(directory.clone(), name, *port, args.page_token.as_deref())?;
    } else if args.page_token.is_some() {
        return Err(ClusterError::TokenAlone);
    }
    let numbers = Arc::new(HostNumbers { host: host.clone(), handle: Handle::current() });
    begin_metrics(&args.metrics, numbers, false)?;
    let begun = || say(&format!("dapple: host {name} of {place}\n"));
    let stop = stop_signal(&mut term, &mut int);
    let running = host.run(stop, begun);
    running.await?;
    Ok(())
}

/// The first signal ends the host in stages, a second one at once.
async fn stop_signal(term: &mut Signal, int: &mut Signal) {
    race(term.recv(), int.recv()).await;
    if let (Ok(mut term), Ok(mut int)) = (signal(SIGTERM), signal(SIGINT)) {
        drop(Color::new().spawn_background(async move {
            race(term.recv(), int.recv()).await;
            warn!("second signal: replicas are ended by the next start of this host");
            std::process::exit(1);
        }));
    }
}

fn serve_page(directory: Directory, host: &str, port: u16, token: Option<&str>) -> Result<(), ClusterError> {
    let wanted =
        Wanted { host: host.to_owned(), port, reuse_port: false, redirects: false, option: "--page HOST:PORT" };
    for one in listen(std::slice::from_ref(&wanted), &wanted, None)? {
        if let Some(addr) = one.addr() {
            if token.is_none() && !addr.ip().is_loopback() {
                return Err(ClusterError::NoToken(addr));
            }
            say(&format!("dapple: the cluster as a page: http://{addr}/\n"));
        }
        let listener = one.into_listener().map_err(ClusterError::Runtime)?;
        let page = Arc::new(Page::new(directory.clone(), token));
        drop(Color::new().spawn_background(dapple_serve::metrics::listener::serve_pages(listener, page)));
    }
    Ok(())
}

/// Shows or changes a cluster.
///
/// # Errors
///
/// See [`ClusterError`].
pub(crate) fn run_cluster(args: &ClusterArgs) -> Result<(), ClusterError> {
    let place = args.join.clone().ok_or(ClusterError::NoPlace)?;
    let runtime = dapple::builder().workers(1).build().map_err(ClusterError::Runtime)?;
    runtime.block_on(async {
        let directory = Directory::new(place);
        act(&directory, args.action.as_ref().unwrap_or(&Action::Status), args.json).await
    })
}

async fn act(directory: &Directory, action: &Action, as_json: bool) -> Result<(), ClusterError> {
    let done = match action {
        Action::Status => {
            let summary = Summary::of(&directory.status().await?);
            say(&if as_json { in_json(&summary) } else { summary.text() });
            return Ok(());
        }
        Action::Events { last } => {
            let events = directory.events().await?;
            let first = events.len().saturating_sub(*last);
            let text = match as_json {
                true => in_json(&&events[first..]),
                false => events[first..].iter().map(line_of).collect(),
            };
            say(&text);
            return Ok(());
        }
        Action::Apply { file } => {
            let services = read_services(file)?;
            directory.apply(&services).await?;
            format!("applied: {}", services.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", "))
        }
        Action::Scale { service, min, max } => {
            let max = max.unwrap_or(*min);
            if max < *min {
                return Err(ClusterError::Bounds(*min, max));
            }
            directory.scale(service, *min, max).await?;
            format!("{service}: {min} to {max} replicas")
        }
        Action::Roll { service, to } => {
            directory.roll(service, to.as_deref()).await?;
            format!("{service}: all replicas are replaced")
        }
        Action::Remove { service } => {
            directory.remove(service).await?;
            format!("{service}: removed")
        }
        Action::Drain { host, undo } => {
            dapple_cluster::record::check_name(host).map_err(ClusterError::HostName)?;
            directory.drain(host, !undo).await?;
            let is_known = directory.status().await?.view.hosts.contains_key(host);
            let note = if is_known { "" } else { " (no host of this name is registered now)" };
            if *undo {
                format!("{host}: may be used again{note}")
            } else {
                format!("{host}: its replicas move away{note}")
            }
        }
    };
    say(&if as_json { in_json(&serde_json::json!({ "done": done })) } else { format!("{done}\n") });
    Ok(())
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceFile {
    service: Vec<Service>,
}

fn read_services(file: &Path) -> Result<Vec<Service>, ClusterError> {
    let text = fs::read_to_string(file).map_err(|error| ClusterError::File(file.to_owned(), error.to_string()))?;
    let read: ServiceFile =
        toml::from_str(&text).map_err(|error| ClusterError::File(file.to_owned(), error.to_string()))?;
    Ok(read.service)
}

fn line_of(event: &Event) -> String {
    let time = std::time::UNIX_EPOCH + Duration::from_millis(event.time_ms);
    format!("{}  {}  {}: {}\n", httpdate::fmt_http_date(time), event.decider, event.done, event.reason)
}

fn in_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).map_or_else(|error| error.to_string(), |text| text + "\n")
}

fn say(text: &str) {
    let mut stdout = io::stdout().lock();
    // A closed stdout is no error.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn usual_state(name: &str) -> Result<PathBuf, ClusterError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    Ok(state.ok_or(ClusterError::NoState)?.join("dapple/host").join(name))
}
