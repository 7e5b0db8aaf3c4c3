//! The papers' figures, compared with today's. Their texts give some numbers; the rest is only in
//! plots, and left out.

use super::beside::{cases, middle, of, peers_of, share_of_best};
use super::experiment::{Case, Figures, WebRow};
use crate::chart::{Chart, Series, Spread};
use crate::experiment::{BesidePaper, Peer};
use crate::machine::About;
use crate::stats::{Table, ratio_text};
use crate::words::name;

/// A paper's figures for one workload.
struct Paper {
    title: &'static str,
    /// Throughput on one processor: of its server, and of the one that cannot use more.
    mb_per_s: (f64, f64),
    /// Its server's speed-up by number of processors, relative to one.
    speed_up: &'static [(usize, f64)],
    /// Copies of the one that cannot use more, likewise.
    copies: &'static [(usize, f64)],
    /// Flash, likewise.
    flash: &'static [(usize, f64)],
    /// Figures: speed-up, and throughput of several servers.
    figures: (&'static str, &'static str),
}

const THESIS: Paper = Paper {
    title: "libasync-mp thesis 2002, section 5.1, Figures 5-2 and 5-3",
    mb_per_s: (22.8, 24.8),
    speed_up: &[(1, 1.0), (2, 1.36), (4, 1.54)],
    copies: &[(1, 1.0), (4, 2.50)],
    flash: &[(1, 1.0), (4, 1.73)],
    figures: ("thesis-figure-5-2", "thesis-figure-5-3"),
};

const USENIX: Paper = Paper {
    title: "libasync-smp, USENIX 2003, section 5.1, Figures 7 and 8",
    mb_per_s: (30.4, 35.4),
    speed_up: &[(1, 1.0), (2, 1.28), (4, 1.5)],
    copies: &[(1, 1.0)],
    flash: &[(1, 1.0), (4, 1.68)],
    figures: ("usenix-figure-7", "usenix-figure-8"),
};

pub(super) fn small(rows: &[WebRow], about: &About) -> BesidePaper {
    beside(&THESIS, rows, about)
}

pub(super) fn specweb(rows: &[WebRow], about: &About) -> BesidePaper {
    beside(&USENIX, rows, about)
}

/// Thesis, Figure 5-4, and USENIX, Figure 9: throughput must not fall with the number of clients.
pub(super) fn overload(rows: &[WebRow]) -> BesidePaper {
    let mut table =
        Table::new(&["peer", "workers", "clients", "rate to own best", "p99 ms", "Jain", "starved", "paper"]);
    let most = cases(rows).iter().map(|case| case.connections).max();
    for peer in peers_of(rows) {
        for case in cases(rows).into_iter().filter(|case| Some(case.connections) == most) {
            let own = of(rows, peer, case);
            let figure = |figure: fn(&Figures) -> f64| middle(&own, figure);
            let Some(p99_ms) = figure(|of| of.p99_ms) else { continue };
            table.row(vec![
                name(peer),
                case.workers.to_string(),
                case.connections.to_string(),
                ratio_text(share_of_best(rows, peer, case)),
                format!("{p99_ms:.1}"),
                text(figure(|of| of.jain), 3),
                text(figure(|of| of.starved), 0),
                if peer == Peer::Dapple { "\"consistent performance\"" } else { "-" }.to_owned(),
            ]);
        }
    }
    let title = "thesis Figure 5-4 and USENIX Figure 9: the most clients beside the best number of them";
    BesidePaper { tables: vec![(title.to_owned(), table)], charts: Vec::new(), curves: Vec::new() }
}

/// PLDI, Figure 19: the paper's server "compares favorably to Apache".
pub(super) fn cold(rows: &[WebRow]) -> BesidePaper {
    let mut table =
        Table::new(&["clients", "workers", "limit MB", "dapple MB/s", "apache MB/s", "dapple to apache", "paper"]);
    for case in cases(rows) {
        let mb_per_s = |peer| middle(&of(rows, peer, case), |of| of.mb_per_s);
        let (Some(dapple), Some(apache)) = (mb_per_s(Peer::Dapple), mb_per_s(Peer::Apache)) else { continue };
        table.row(vec![
            case.connections.to_string(),
            case.workers.to_string(),
            case.memory_mb.map_or("-".to_owned(), |limit| limit.to_string()),
            text(Some(dapple), 1),
            text(Some(apache), 1),
            ratio_text(Some(dapple / apache)),
            "\"compares favorably\"".to_owned(),
        ]);
    }
    let title = "PLDI 2007, Figure 19 (there: 128K files of 16 KB, a disk of 7,200 turns, 100 Mbit/s)";
    BesidePaper { tables: vec![(title.to_owned(), table)], charts: Vec::new(), curves: Vec::new() }
}

fn beside(paper: &Paper, rows: &[WebRow], about: &About) -> BesidePaper {
    let Some(connections) = cases(rows).first().map(|case| case.connections) else { return BesidePaper::default() };
    let today = |peer, workers| middle(&of(rows, peer, case_of(connections, workers)), |of| of.mb_per_s);
    let one = today(Peer::Dapple, 1);
    let mut table = Table::new(&["what", "today", "paper"]);
    let mut row = |what: &str, today: Option<f64>, paper: Option<f64>, unit: &str| {
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}{unit}"));
        table.row(vec![what.to_owned(), cell(today), cell(paper)]);
    };
    row("one worker", one, Some(paper.mb_per_s.0), " MB/s");
    row(
        "one worker, program without colors (today: --serial)",
        today(Peer::DappleSerial, 1),
        Some(paper.mb_per_s.1),
        " MB/s",
    );
    let share = |own: Option<f64>, of: Option<f64>| Some(own? / of?);
    let serial_share = share(one, today(Peer::DappleSerial, 1));
    row("colors, to the program without", serial_share, Some(paper.mb_per_s.0 / paper.mb_per_s.1), "x");
    let mut workers: Vec<usize> =
        cases(rows).iter().map(|case| case.workers).chain([2, 4]).filter(|n| *n > 1).collect();
    workers.sort_unstable();
    workers.dedup();
    for workers in workers {
        let found = |list: &[(usize, f64)]| list.iter().find(|(count, _)| *count == workers).map(|(_, ratio)| *ratio);
        let today = |peer| share(today(peer, workers), one);
        row(&format!("{workers} workers, to one"), today(Peer::Dapple), found(paper.speed_up), "x");
        row(&format!("{workers} copies, to one"), today(Peer::DappleCopies), found(paper.copies), "x");
        let flash = "processes of nginx (paper: Flash), to its one";
        let nginx_one = middle(&of(rows, Peer::Nginx, case_of(connections, 1)), |of| of.mb_per_s);
        let nginx = middle(&of(rows, Peer::Nginx, case_of(connections, workers)), |of| of.mb_per_s);
        row(&format!("{workers} {flash}"), share(nginx, nginx_one), found(paper.flash), "x");
    }
    let charts = vec![
        (paper.figures.0.to_owned(), speed_up_chart(paper, rows, connections, about)),
        (paper.figures.1.to_owned(), servers_chart(paper, rows, connections, about)),
    ];
    BesidePaper { tables: vec![(paper.title.to_owned(), table)], charts, curves: Vec::new() }
}

/// The speed-up with more workers: today's as measured, the paper's as published.
fn speed_up_chart(paper: &Paper, rows: &[WebRow], connections: usize, about: &About) -> Chart {
    let mut groups: Vec<usize> = cases(rows).iter().map(|case| case.workers).chain([1, 2, 4]).collect();
    groups.sort_unstable();
    groups.dedup();
    let spread = |value: f64| Spread { least: value, median: value, most: value };
    let one = middle(&of(rows, Peer::Dapple, case_of(connections, 1)), |of| of.mb_per_s);
    let today = |peer: Peer, workers: usize| {
        let peer = if workers == 1 { Peer::Dapple } else { peer };
        let own = of(rows, peer, case_of(connections, workers));
        let ratios = own.iter().filter_map(|row| Some(row.figures.as_ref()?.mb_per_s / one?));
        Spread::of(ratios)
    };
    let told = |list: &'static [(usize, f64)], workers: usize| {
        list.iter().find(|(count, _)| *count == workers).map(|(_, ratio)| spread(*ratio))
    };
    let series = |label: &str, style, points: Vec<Option<Spread>>| Series { label: label.to_owned(), style, points };
    let all =
        |point: &dyn Fn(usize) -> Option<Spread>| groups.iter().map(|workers| point(*workers)).collect::<Vec<_>>();
    let series = vec![
        series("dapple", 0, all(&|workers| today(Peer::Dapple, workers))),
        series("dapple, copies", 1, all(&|workers| today(Peer::DappleCopies, workers))),
        series("paper", 2, all(&|workers| told(paper.speed_up, workers))),
        series("paper, copies", 3, all(&|workers| told(paper.copies, workers))),
        series("paper, Flash", 4, all(&|workers| told(paper.flash, workers))),
    ];
    chart("throughput to one worker's", paper.title, "to one worker", groups, series, about)
}

/// Throughput of all measured servers.
fn servers_chart(paper: &Paper, rows: &[WebRow], connections: usize, about: &About) -> Chart {
    let mut groups: Vec<usize> = cases(rows).iter().map(|case| case.workers).collect();
    groups.sort_unstable();
    groups.dedup();
    let series = peers_of(rows).into_iter().map(|peer| {
        let point = |workers: &usize| {
            let own = of(rows, peer, case_of(connections, *workers));
            Spread::of(own.iter().filter_map(|row| Some(row.figures.as_ref()?.mb_per_s)))
        };
        Series { label: name(peer), style: peer.style(), points: groups.iter().map(point).collect() }
    });
    let series = series.collect();
    chart("throughput of several servers", paper.title, "MB a second", groups, series, about)
}

fn chart(what: &str, paper: &str, y_title: &str, groups: Vec<usize>, series: Vec<Series>, about: &About) -> Chart {
    Chart {
        title: format!("{what}; {paper}"),
        footer: format!("{}; kernel {}; commit {}; medians", about.machine, about.kernel, about.commit),
        x_title: "workers (paper: processors)".to_owned(),
        y_title: y_title.to_owned(),
        y_log: false,
        groups,
        group_names: Vec::new(),
        series,
        bars_wanted: true,
    }
}

fn case_of(connections: usize, workers: usize) -> Case {
    Case { connections, workers, memory_mb: None }
}

fn text(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}
