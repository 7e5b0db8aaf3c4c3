//! `bench colors --plot DIR`: rates over workers and CPU per callback, two SVG files per case.

use super::case::{Case, Peer, Placement};
use super::trial::Measured;
use crate::chart::{Chart, Series, Spread, make_plot_folder};
use crate::machine::About;
use crate::words::name;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A writable folder for plots.
pub(crate) struct Plots {
    folder: PathBuf,
}

impl Plots {
    /// Makes the folder, and checks that it is writable: before the runs, not after them.
    pub(crate) fn in_folder(folder: &Path) -> Result<Plots> {
        make_plot_folder(folder)?;
        Ok(Plots { folder: folder.to_owned() })
    }

    /// Writes the plots of all cases; returns the names of the files.
    pub(crate) fn write(&self, about: &About, all: &[Measured]) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for case in Case::of_runs(all.iter().map(|run| run.case)) {
            let runs: Vec<&Measured> = all.iter().filter(|run| run.case == case && run.checked).collect();
            for (what, chart) in charts(about, case, &runs) {
                let file = self.folder.join(format!("{}-{what}.svg", file_stem(&case)));
                let svg = if what == "rate" { chart.lines() } else { chart.bars() };
                let svg = svg.with_context(|| format!("cannot draw {}", file.display()))?;
                std::fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))?;
                files.push(file);
            }
        }
        Ok(files)
    }
}

fn file_stem(case: &Case) -> String {
    let Case { workload, colors, in_flight, work_ns } = case;
    format!("{}-{colors}-colors-{in_flight}-in-flight-{work_ns}-ns", name(*workload))
}

fn charts(about: &About, case: Case, runs: &[&Measured]) -> [(&'static str, Chart); 2] {
    let counts: BTreeSet<usize> = runs.iter().map(|run| run.workers).collect();
    let counts: Vec<usize> = counts.into_iter().collect();
    let repetitions = runs.iter().map(|run| run.run + 1).max().unwrap_or(0);
    let footer = format!("{}; kernel {}; commit {}; {repetitions} runs", about.machine, about.kernel, about.commit);
    let chart = |y_title: &str, shown: &str, figure: fn(&Measured) -> f64| Chart {
        title: case.title(),
        footer: format!("{footer}: {shown}"),
        x_title: "workers".to_owned(),
        y_title: y_title.to_owned(),
        y_log: false,
        groups: counts.clone(),
        group_names: Vec::new(),
        series: all_series(runs, &counts, figure),
        bars_wanted: false,
    };
    [
        ("rate", chart("million callbacks per second", "median, with least and most", |run| run.rate_per_s / 1e6)),
        ("cpu", chart("CPU time per callback, ns", "median", |run| run.cpu_ns_per_op)),
    ]
}

/// One series for each peer and placement. Runs without a placement, with one worker, begin every
/// series of their peer.
fn all_series(runs: &[&Measured], counts: &[usize], figure: fn(&Measured) -> f64) -> Vec<Series> {
    let mut series = Vec::new();
    for peer in Peer::ALL {
        let own = |placement: Option<Placement>| {
            runs.iter().filter(move |run| run.peer == peer && (run.placement == placement || run.workers == 1))
        };
        let mut placements: Vec<Option<Placement>> = vec![None];
        let placed = [Some(Placement::Gathered), Some(Placement::Split)];
        let placed = placed.into_iter().filter(|place| own(*place).any(|run| run.placement == *place));
        if peer.places() && own(None).all(|run| run.workers == 1) && placed.clone().count() > 0 {
            placements = placed.collect();
        }
        for placement in placements {
            let spread = |workers: &usize| {
                Spread::of(own(placement).filter(|run| run.workers == *workers).map(|run| figure(run)))
            };
            let points: Vec<Option<Spread>> = counts.iter().map(spread).collect();
            if points.iter().any(Option::is_some) {
                let label = placement.map_or_else(|| name(peer), |place| format!("{}, {}", name(peer), name(place)));
                series.push(Series { label, style: style(peer, placement), points });
            }
        }
    }
    series
}

/// The color of a series in the palette, always the same, so that plots can be compared.
fn style(peer: Peer, placement: Option<Placement>) -> usize {
    match (peer, placement) {
        (Peer::Dapple, Some(Placement::Split)) => 1,
        (Peer::Dapple, _) => 0,
        (Peer::TokioMpsc, _) => 2,
        (Peer::TokioSpawnMutex, _) => 3,
        (Peer::Kameo, _) => 4,
        (Peer::Actix, Some(Placement::Split)) => 6,
        (Peer::Actix, _) => 5,
        (Peer::TokioMutex, _) => 7,
        (Peer::ParkingLot, _) => 8,
        (Peer::GoChannel, _) => 9,
        (Peer::GoMailbox, _) => 10,
        (Peer::GoMutex, _) => 11,
        (Peer::AsioStrand, _) => 12,
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::Workload;
    use super::super::trial::TrialArgs;
    use super::*;

    fn measured(peer: Peer, workers: usize, placement: Option<Placement>, rate_per_s: f64) -> Measured {
        let case = Case::new(Workload::W4, None, None, 0);
        let args = TrialArgs { case, peer, workers, placement, run: 0, secs: 1.0, spin_rounds: 0 };
        Measured {
            rate_per_s,
            cpu_ns_per_op: 20.0,
            checked: true,
            problem: None,
            ..Measured::failed(&args, String::new())
        }
    }

    fn runs() -> Vec<Measured> {
        vec![
            measured(Peer::Dapple, 1, None, 3e7),
            measured(Peer::Dapple, 2, Some(Placement::Gathered), 5e7),
            measured(Peer::Dapple, 2, Some(Placement::Split), 4e7),
            measured(Peer::Kameo, 1, None, 1e6),
        ]
    }

    #[test]
    fn placements_share_the_one_worker_that_has_none() {
        let all = runs();
        let all: Vec<&Measured> = all.iter().collect();
        let series = all_series(&all, &[1, 2], |run| run.rate_per_s / 1e6);
        let medians =
            |series: &Series| -> Vec<_> { series.points.iter().map(|p| p.as_ref().map(|p| p.median)).collect() };
        let found: Vec<_> = series.iter().map(|series| (series.label.as_str(), medians(series))).collect();
        let expected = [
            ("dapple, gathered", vec![Some(30.0), Some(50.0)]),
            ("dapple, split", vec![Some(30.0), Some(40.0)]),
            ("kameo", vec![Some(1.0), None]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn two_files_per_case_that_name_what_they_show() {
        let folder = tempfile::tempdir().expect("a folder");
        let plots = Plots::in_folder(&folder.path().join("new")).expect("the folder is made");
        let about = crate::machine::about();
        let files = plots.write(&about, &runs()).expect("they are drawn");
        let stems: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
        assert_eq!(stems, ["w4-2-colors-64-in-flight-0-ns-rate.svg", "w4-2-colors-64-in-flight-0-ns-cpu.svg"]);
        for file in files {
            let svg = std::fs::read_to_string(&file).expect("the file exists");
            for text in ["two colors post to each other", "dapple, split", "kameo", "workers", about.kernel.as_str()] {
                assert!(svg.contains(text), "{} does not say {text}", file.display());
            }
        }
    }

    #[test]
    fn a_folder_that_cannot_be_is_an_error_that_names_it() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let error = Plots::in_folder(&file.path().join("below")).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("below: pass a folder")));
    }
}
