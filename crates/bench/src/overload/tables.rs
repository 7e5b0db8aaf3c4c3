//! The goodput table: a row per server, a column per load.

use super::experiment::{Case, OverloadRow};
use super::figures::Figures;
use crate::experiment::{Peer, workers_text};
use crate::stats::{Table, median};
use crate::words::name;
use serde_json::{Map, Value, json};

/// Goodput by load, and its share of the capacity, for each scenario and number of workers that has
/// several loads.
pub(super) fn goodput(rows: &[OverloadRow]) -> Vec<(String, Table)> {
    let mut tables = Vec::new();
    for group in groups(rows) {
        if group.loads.is_empty() {
            continue;
        }
        let title = format!("{}; {}", group.case.scenario.title(), workers_text(group.case.workers));
        let second = group.table(rows, |of| of.goodput_per_s);
        tables.push((format!("goodput a second: {title}"), second));
        let shares = group.table(rows, |of| of.goodput_percent);
        tables.push((format!("goodput, percent of own capacity: {title}"), shares));
        if group.case.scenario.costs().iter().any(|costs| costs.len() > 1) {
            let work = group.table(rows, |of| of.work_percent);
            tables.push((format!("CPU time that good replies asked for, percent of what there was: {title}"), work));
        }
    }
    tables
}

/// A line for each server, scenario and number of workers, with medians by load.
pub(super) fn summary(experiment: &str, rows: &[OverloadRow]) -> Vec<Value> {
    let groups = groups(rows);
    let lines = groups.iter().flat_map(|group| peers(rows).into_iter().map(move |peer| (group, peer)));
    lines.filter_map(|(group, peer)| group.line(experiment, rows, peer)).collect()
}

/// The contents of one table.
struct Group {
    case: Case,
    /// In ascending order; empty if the scenario defines the load.
    loads: Vec<f64>,
}

/// The figure of a line of medians.
type Figure = fn(&Figures) -> Option<f64>;

/// A server that has not recovered ranks after all that have.
fn recovered_after_ms(of: &Figures) -> Option<f64> {
    Some(of.recovered_after_ms.unwrap_or(f64::INFINITY))
}

const FIGURES: &[(&str, Figure)] = &[
    ("goodput_per_s", |of| Some(of.goodput_per_s)),
    ("goodput_percent", |of| Some(of.goodput_percent)),
    ("work_percent", |of| Some(of.work_percent)),
    ("accepted_p50_ms", |of| of.accepted_p50_ms),
    ("accepted_p99_ms", |of| of.accepted_p99_ms),
    ("refusal_p50_ms", |of| of.refusal_p50_ms),
    ("refusal_p99_ms", |of| of.refusal_p99_ms),
    ("refusal_max_ms", |of| of.refusal_max_ms),
    ("recovered_after_ms", recovered_after_ms),
    ("resident_max_mb", |of| Some(of.resident_max_mb)),
];

fn groups(rows: &[OverloadRow]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for row in rows {
        let case = Case { load: None, ..row.case };
        let at = groups.iter().position(|group| group.case == case).unwrap_or_else(|| {
            groups.push(Group { case, loads: Vec::new() });
            groups.len() - 1
        });
        let loads = &mut groups[at].loads;
        loads.extend(row.case.load.filter(|load| !loads.contains(load)));
        loads.sort_by(f64::total_cmp);
    }
    groups
}

/// The peers of these runs, in their order.
fn peers(rows: &[OverloadRow]) -> Vec<Peer> {
    let took_part = |peer: &&Peer| rows.iter().any(|row| row.peer == **peer);
    super::server::PEERS.iter().filter(took_part).copied().collect()
}

impl Group {
    fn table(&self, rows: &[OverloadRow], figure: fn(&Figures) -> f64) -> Table {
        let heads: Vec<String> = self.loads.iter().map(|load| format!("{load}x")).collect();
        let mut head = vec!["peer", "capacity"];
        head.extend(heads.iter().map(String::as_str));
        let mut table = Table::new(&head);
        for peer in peers(rows) {
            let all: Vec<f64> = self.of(rows, peer, None).map(|of| of.capacity_per_s).collect();
            let mut cells = vec![name(peer), text(median(&all))];
            for &load in &self.loads {
                let own: Vec<&Figures> = self.of(rows, peer, Some(load)).collect();
                let mark = if own.iter().any(|of| of.load_fell_behind) { "*" } else { "" };
                let values: Vec<f64> = own.into_iter().map(figure).collect();
                cells.push(format!("{}{mark}", text(median(&values))));
            }
            table.row(cells);
        }
        table
    }

    /// Figures of a server in this group: at one load, or at all loads.
    fn of<'a>(&self, rows: &'a [OverloadRow], peer: Peer, load: Option<f64>) -> impl Iterator<Item = &'a Figures> {
        let case = self.case;
        let of_group = move |row: &&OverloadRow| row.peer == peer && Case { load: None, ..row.case } == case;
        let own = rows.iter().filter(of_group).filter(move |row| load.is_none() || row.case.load == load);
        own.filter_map(|row| row.figures.as_ref())
    }

    fn line(&self, experiment: &str, rows: &[OverloadRow], peer: Peer) -> Option<Value> {
        let own = rows.iter().filter(|row| row.peer == peer && Case { load: None, ..row.case } == self.case);
        let own: Vec<&OverloadRow> = own.collect();
        let runs = own.iter().map(|row| row.run + 1).max()?;
        let capacities: Vec<f64> = self.of(rows, peer, None).map(|of| of.capacity_per_s).collect();
        let mut line = Map::new();
        line.insert("experiment".to_owned(), json!(experiment));
        line.insert("summary".to_owned(), json!("medians by load"));
        line.insert("scenario".to_owned(), json!(self.case.scenario));
        line.insert("workers".to_owned(), json!(self.case.workers));
        line.insert("connections".to_owned(), json!(self.case.connections));
        line.insert("peer".to_owned(), json!(peer));
        line.insert("runs".to_owned(), json!(runs));
        line.insert("capacity_per_s".to_owned(), json!(median(&capacities)));
        for (what, figure) in FIGURES {
            line.insert((*what).to_owned(), self.by_load(rows, peer, *figure));
        }
        if self.case.scenario.clients().len() > 1 {
            line.insert("in_time_percent".to_owned(), super::shares::in_time(rows, &self.case, peer));
        }
        line.insert(
            "load_fell_behind".to_owned(),
            json!(self.of(rows, peer, None).filter(|of| of.load_fell_behind).count()),
        );
        line.insert("checked".to_owned(), json!(own.iter().all(|row| row.checked)));
        Some(Value::Object(line))
    }

    /// The median of a figure, by load if there are several.
    fn by_load(&self, rows: &[OverloadRow], peer: Peer, figure: Figure) -> Value {
        let middle = |load: Option<f64>| {
            let values: Vec<f64> = self.of(rows, peer, load).filter_map(figure).collect();
            if values.is_empty() { Value::Null } else { json!(median(&values)) }
        };
        if self.loads.is_empty() {
            return middle(None);
        }
        Value::Object(self.loads.iter().map(|&load| (format!("{load}x"), middle(Some(load)))).collect())
    }
}

fn text(value: f64) -> String {
    if value.is_nan() { "-".to_owned() } else { format!("{value:.0}") }
}
