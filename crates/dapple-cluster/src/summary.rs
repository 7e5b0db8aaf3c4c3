//! A cluster as people and scripts see it: for the terminal, the page, and `--json`.

use std::fmt::Write;

use serde::Serialize;

use crate::directory::Status;
use crate::plan::Shortage;
use crate::record::{ReplicaState, Service};

/// The whole of a cluster, flat.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The host that decides.
    pub decider: Option<String>,
    /// The services, by name.
    pub services: Vec<ServiceRow>,
    /// The hosts with a lease, by name.
    pub hosts: Vec<HostRow>,
    /// The assigned replicas, by service and name.
    pub replicas: Vec<ReplicaRow>,
    /// The wishes that cannot be met.
    pub shortages: Vec<Shortage>,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServiceRow {
    /// Its name.
    pub name: String,
    /// The version that is wanted.
    pub version: String,
    /// The least number of replicas.
    pub min: u32,
    /// The largest number.
    pub max: u32,
    /// How many have a host.
    pub assigned: usize,
    /// How many serve.
    pub ready: usize,
    /// How many of those that serve are as described.
    pub current: usize,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostRow {
    /// Its name.
    pub name: String,
    /// The address at which its replicas listen.
    pub address: String,
    /// `serving`, `draining` or `leaving`.
    pub state: &'static str,
    /// The cores that it offers.
    pub cores: f64,
    /// The cores that its replicas were promised.
    pub cores_promised: f64,
    /// The memory that it offers, in 1,048,576 bytes.
    pub memory_mb: u64,
    /// The memory that its replicas were promised.
    pub memory_promised_mb: u64,
    /// The measured use of the cores, in percent.
    pub load_percent: u32,
    /// The number of its replicas.
    pub replicas: usize,
    /// How limits are kept there.
    pub limits: String,
}

/// A replica.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplicaRow {
    /// Its name.
    pub replica: String,
    /// Its service.
    pub service: String,
    /// Its version.
    pub version: String,
    /// Its host.
    pub host: String,
    /// Its state; `assigned` before its host has reported one.
    pub state: &'static str,
    /// Where it listens.
    pub listens: Option<String>,
    /// Its load, in percent of its cores.
    pub load_percent: u32,
    /// Its memory, in 1,048,576 bytes.
    pub memory_mb: u64,
    /// How often it was started again.
    pub restarts: u32,
    /// Its last failure.
    pub failure: String,
    /// The replica that goes when this one is ready.
    pub replaces: Option<String>,
    /// Why it is there.
    pub reason: String,
    /// When it was placed, in milliseconds since 1970.
    pub placed_ms: u64,
}

impl Summary {
    /// The summary of what was read.
    pub fn of(status: &Status) -> Summary {
        let view = &status.view;
        let of_host = |name: &str| view.assigned.values().filter(|one| one.host == name).collect::<Vec<_>>();
        let hosts = view.hosts.iter().map(|(name, host)| {
            let here = of_host(name);
            let state = match (view.draining.contains(name), host.is_leaving) {
                (_, true) => "leaving",
                (true, false) => "draining",
                (false, false) => "serving",
            };
            HostRow {
                name: name.clone(),
                address: host.address.clone(),
                state,
                cores: host.cores,
                // A sum of nothing is -0.
                cores_promised: here.iter().fold(0.0, |sum, one| sum + one.service.cores),
                memory_mb: host.memory_mb,
                memory_promised_mb: here.iter().map(|one| one.service.memory_mb).sum(),
                load_percent: host.load_percent,
                replicas: here.len(),
                limits: host.limits.clone(),
            }
        });
        let replicas = view.assigned.values().map(|one| {
            let report = view.report(one).cloned();
            let state = report.as_ref().map_or("assigned", |report| state_text(report.state));
            let report = report.unwrap_or_default();
            ReplicaRow {
                replica: one.replica.clone(),
                service: one.service.name.clone(),
                version: one.service.version.clone(),
                host: one.host.clone(),
                state,
                listens: report.listens,
                load_percent: report.load_percent,
                memory_mb: report.memory_mb,
                restarts: report.restarts,
                failure: report.failure,
                replaces: one.replaces.clone(),
                reason: one.reason.clone(),
                placed_ms: one.placed_ms,
            }
        });
        Summary {
            decider: status.decider.clone(),
            services: view.services.values().map(|service| service_row(status, service)).collect(),
            hosts: hosts.collect(),
            replicas: replicas.collect(),
            shortages: status.shortages.clone(),
        }
    }

    /// The summary for a terminal.
    pub fn text(&self) -> String {
        let mut text = match &self.decider {
            Some(host) => format!("{host} decides\n"),
            None => "no host decides at this moment\n".to_owned(),
        };
        let services = self.services.iter().map(|one| {
            let number = if one.min == one.max { one.min.to_string() } else { format!("{} to {}", one.min, one.max) };
            vec![
                one.name.clone(),
                one.version.clone(),
                number,
                format!("{} of {}", one.ready, one.assigned),
                one.current.to_string(),
            ]
        });
        table(&mut text, &["SERVICE", "VERSION", "WANTED", "READY", "CURRENT"], services.collect());
        let hosts = self.hosts.iter().map(|one| {
            let cores = format!("{} of {}", one.cores_promised, one.cores);
            let memory = format!("{} of {} MB", one.memory_promised_mb, one.memory_mb);
            let row = [
                &one.name,
                &one.address,
                one.state,
                &cores,
                &memory,
                &format!("{} %", one.load_percent),
                &one.replicas.to_string(),
            ];
            row.map(str::to_owned).into()
        });
        table(&mut text, &["HOST", "ADDRESS", "STATE", "CORES", "MEMORY", "LOAD", "REPLICAS"], hosts.collect());
        let replicas = self.replicas.iter().map(|one| {
            let listens = one.listens.as_deref().unwrap_or("-");
            let (load, memory) = (format!("{} %", one.load_percent), format!("{} MB", one.memory_mb));
            let row = [
                &one.replica,
                &one.version,
                &one.host,
                one.state,
                listens,
                &load,
                &memory,
                &one.restarts.to_string(),
                &one.reason,
            ];
            row.map(str::to_owned).into()
        });
        let titles = ["REPLICA", "VERSION", "HOST", "STATE", "LISTENS", "LOAD", "MEMORY", "RESTARTS", "REASON"];
        table(&mut text, &titles, replicas.collect());
        if !self.shortages.is_empty() {
            text.push('\n');
        }
        for one in &self.shortages {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}: {}", one.service, one.text);
        }
        text
    }
}

fn service_row(status: &Status, service: &Service) -> ServiceRow {
    let view = &status.view;
    let assigned: Vec<_> = view.assigned.values().filter(|one| one.service.name == service.name).collect();
    let ready: Vec<_> = assigned.iter().filter(|one| view.is_ready(one)).collect();
    ServiceRow {
        name: service.name.clone(),
        version: service.version.clone(),
        min: service.min,
        max: service.max(),
        assigned: assigned.len(),
        ready: ready.len(),
        current: ready.iter().filter(|one| one.service.runs_like(service)).count(),
    }
}

fn state_text(state: ReplicaState) -> &'static str {
    match state {
        ReplicaState::Starting => "starting",
        ReplicaState::Ready => "ready",
        ReplicaState::Waiting => "waiting",
        ReplicaState::Draining => "draining",
        ReplicaState::Succeeded => "succeeded",
    }
}

/// A table with columns as wide as their widest cell.
fn table(text: &mut String, titles: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).chain([titles[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    text.push('\n');
    for row in std::iter::once(titles.iter().map(|title| (*title).to_owned()).collect()).chain(rows) {
        let row: Vec<String> = row;
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::{Summary, table};
    use crate::directory::Status;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut text = String::new();
        table(&mut text, &["A", "LONG"], vec![vec!["abc".into(), "d".into()], vec!["e".into(), "f".into()]]);
        assert_eq!(text, "\nA    LONG\nabc  d\ne    f\n");
        assert_eq!(Summary::of(&Status::default()).text(), "no host decides at this moment\n");
    }
}
