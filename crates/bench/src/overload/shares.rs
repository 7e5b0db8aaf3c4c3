//! The shares of each of several clients: tables, and bars.

use super::experiment::{Case, OverloadRow};
use super::figures::ClientFigures;
use crate::chart::{Chart, Series, Spread};
use crate::experiment::{Peer, runs_text, workers_text};
use crate::machine::About;
use crate::stats::{Table, median};
use crate::words::name;
use serde_json::{Value, json};

/// For each case with several clients: the share of each one's requests that was answered in time,
/// and the latencies.
pub(super) fn tables(rows: &[OverloadRow]) -> Vec<(String, Table)> {
    let mut tables = Vec::new();
    for case in cases(rows) {
        let title = title(&case);
        let in_time = table(rows, &case, |own| Some(own.in_time_percent));
        tables.push((format!("answered in time, percent of each client's requests: {title}"), in_time));
        let p99 = table(rows, &case, |own| own.accepted_p99_ms);
        tables.push((format!("99th percentile of right replies' latency, ms: {title}"), p99));
    }
    tables
}

/// The medians of one peer, by client.
pub(super) fn in_time(rows: &[OverloadRow], case: &Case, peer: Peer) -> Value {
    let of = |client: &'static str| {
        let values: Vec<f64> = figures(rows, case, peer, client, |own| Some(own.in_time_percent)).collect();
        (client.to_owned(), json!(median(&values)))
    };
    Value::Object(names(case).map(of).collect())
}

/// For each case with several clients: bars of the share that was answered in time.
pub(super) fn charts(rows: &[OverloadRow], about: &About) -> Vec<(String, Chart)> {
    let stem = |case: &Case| format!("in-time-{}-{}", case.scenario, workers_text(case.workers).replace(' ', "-"));
    cases(rows).iter().map(|case| (stem(case), chart(rows, case, about))).collect()
}

fn cases(rows: &[OverloadRow]) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for row in rows {
        if row.case.scenario.clients().len() > 1 && !cases.contains(&row.case) {
            cases.push(row.case);
        }
    }
    cases
}

fn title(case: &Case) -> String {
    format!("{}; {}", case.scenario.title(), workers_text(case.workers))
}

fn names(case: &Case) -> impl Iterator<Item = &'static str> {
    case.scenario.clients().iter().map(|clients| clients.name)
}

/// A figure of one client in each run of a peer.
fn figures<'a>(
    rows: &'a [OverloadRow],
    case: &'a Case,
    peer: Peer,
    client: &'static str,
    figure: fn(&ClientFigures) -> Option<f64>,
) -> impl Iterator<Item = f64> + 'a {
    let own = rows.iter().filter(move |row| row.checked && row.peer == peer && row.case == *case);
    let of_all = own.filter_map(|row| row.figures.as_ref()).flat_map(|of| &of.clients);
    of_all.filter(move |own| own.client == client).filter_map(figure)
}

fn table(rows: &[OverloadRow], case: &Case, figure: fn(&ClientFigures) -> Option<f64>) -> Table {
    let mut head = vec!["peer"];
    head.extend(names(case));
    let mut table = Table::new(&head);
    for peer in peers(rows, case) {
        let mut cells = vec![name(peer)];
        cells.extend(names(case).map(|client| {
            let values: Vec<f64> = figures(rows, case, peer, client, figure).collect();
            if values.is_empty() { "-".to_owned() } else { format!("{:.1}", median(&values)) }
        }));
        table.row(cells);
    }
    table
}

fn peers(rows: &[OverloadRow], case: &Case) -> Vec<Peer> {
    let took_part = |peer: &&Peer| rows.iter().any(|row| row.peer == **peer && row.case == *case);
    super::server::PEERS.iter().filter(took_part).copied().collect()
}

fn chart(rows: &[OverloadRow], case: &Case, about: &About) -> Chart {
    let runs = rows.iter().filter(|row| row.case == *case).map(|row| row.run + 1).max().unwrap_or(0);
    let series = peers(rows, case).into_iter().map(|peer| Series {
        label: name(peer),
        style: peer.style(),
        points: names(case)
            .map(|client| Spread::of(figures(rows, case, peer, client, |own| Some(own.in_time_percent))))
            .collect(),
    });
    Chart {
        title: title(case),
        footer: format!(
            "{}; kernel {}; commit {}; {}: medians",
            about.machine,
            about.kernel,
            about.commit,
            runs_text(runs)
        ),
        x_title: "who asks".to_owned(),
        y_title: "answered in time, percent of its own requests".to_owned(),
        y_log: false,
        groups: (0..names(case).count()).collect(),
        group_names: names(case).map(str::to_owned).collect(),
        series: series.collect(),
        bars_wanted: true,
    }
}
