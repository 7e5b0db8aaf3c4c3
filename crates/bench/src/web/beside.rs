//! The comparisons of the goals: each server with the floor, with the better of hyper and nginx,
//! with its own copies and with its own best.

use super::experiment::{Case, Figures, WebRow};
use crate::experiment::Peer;
use crate::stats::{Table, median, paired, ratio_text};
use crate::words::name;

/// The figures of one peer and case.
pub(super) fn of(rows: &[WebRow], peer: Peer, case: Case) -> Vec<&WebRow> {
    rows.iter().filter(|row| row.peer == peer && row.case == case && row.figures.is_some()).collect()
}

/// The median of one figure; `None` without measurements.
pub(super) fn middle(rows: &[&WebRow], figure: fn(&Figures) -> f64) -> Option<f64> {
    let values: Vec<f64> = rows.iter().filter_map(|row| row.figures.as_ref()).map(figure).collect();
    (!values.is_empty()).then(|| median(&values))
}

/// The cases of these runs, in order.
pub(super) fn cases(rows: &[WebRow]) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for row in rows {
        if !cases.contains(&row.case) {
            cases.push(row.case);
        }
    }
    cases
}

/// The peers of these runs, in their order.
pub(super) fn peers_of(rows: &[WebRow]) -> Vec<Peer> {
    let mut peers: Vec<Peer> = Vec::new();
    for row in rows {
        if !peers.contains(&row.peer) {
            peers.push(row.peer);
        }
    }
    peers.sort_by_key(|peer| *peer as usize);
    peers
}

/// Ratios of paired runs.
pub(super) fn peers(rows: &[WebRow]) -> Vec<(String, Table)> {
    if peers_of(rows).len() < 2 {
        return Vec::new();
    }
    let head = ["peer", "clients", "workers", "CPU to floor", "p99 to floor", "rate to hyper"];
    let nginx = ["CPU to nginx", "rate to nginx", "p99 to nginx"];
    let mut table =
        Table::new(&[&head[..], &nginx, &["rate to copies", "CPU to 1 worker", "rate to own best"]].concat());
    for peer in peers_of(rows) {
        for case in cases(rows) {
            let own = of(rows, peer, case);
            if own.is_empty() {
                continue;
            }
            let to = |peer: Peer, case: Case, figure| ratio(&own, &of(rows, peer, case), figure);
            let nginx = |figure, best| to(better_nginx(rows, case, figure, best), case, figure);
            let one_worker = Case { workers: 1, ..case };
            table.row(vec![
                name(peer),
                case.connections.to_string(),
                case.workers.to_string(),
                to(Peer::Epoll, case, cpu),
                to(Peer::Epoll, case, p99),
                to(Peer::Hyper, case, rate),
                nginx(cpu, f64::min),
                nginx(rate, f64::max),
                nginx(p99, f64::min),
                to(Peer::DappleCopies, case, rate),
                to(peer, one_worker, cpu),
                ratio_text(share_of_best(rows, peer, case)),
            ]);
        }
    }
    vec![("each beside others: medians of paired runs; of nginx, the form with the better figure".to_owned(), table)]
}

/// The form of nginx with the better figure.
fn better_nginx(rows: &[WebRow], case: Case, figure: fn(&Figures) -> f64, best: fn(f64, f64) -> f64) -> Peer {
    let of_form = |peer| middle(&of(rows, peer, case), figure);
    match (of_form(Peer::Nginx), of_form(Peer::NginxAcceptOne)) {
        (Some(all), Some(one)) if best(all, one) == one => Peer::NginxAcceptOne,
        (None, Some(_)) => Peer::NginxAcceptOne,
        _ => Peer::Nginx,
    }
}

/// The rate of a case over the best rate of the same peer with as many workers.
pub(super) fn share_of_best(rows: &[WebRow], peer: Peer, case: Case) -> Option<f64> {
    let rate_of = |case: Case| middle(&of(rows, peer, case), rate);
    let same = cases(rows).into_iter().filter(|other| other.workers == case.workers);
    let best = same.filter_map(rate_of).fold(f64::NAN, f64::max);
    Some(rate_of(case)? / best)
}

fn ratio(own: &[&WebRow], base: &[&WebRow], figure: fn(&Figures) -> f64) -> String {
    let of = |row: &WebRow| row.figures.as_ref().map_or(f64::NAN, figure);
    ratio_text(paired(own, base, |row| row.run, of))
}

fn rate(figures: &Figures) -> f64 {
    figures.rate_per_s
}

fn cpu(figures: &Figures) -> f64 {
    figures.cpu_us_per_request
}

fn p99(figures: &Figures) -> f64 {
    figures.p99_ms
}
