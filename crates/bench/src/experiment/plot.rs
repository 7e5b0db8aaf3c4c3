//! The plots of an experiment: one SVG file per plot and number of workers.

use super::{Experiment, Row, runs_text};
use crate::chart::{Chart, Curves, Series, Spread};
use crate::machine::About;
use crate::words::name;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The content of one plot.
pub(crate) struct Plot<C, F> {
    /// The middle of the file's name, after the experiment's and before that of the part.
    pub(crate) stem: &'static str,
    /// The measured quantity, and its unit.
    pub(crate) y_title: &'static str,
    pub(crate) y_log: bool,
    pub(crate) figure: fn(&F) -> f64,
    /// The quantity along the horizontal axis.
    pub(crate) x_title: &'static str,
    pub(crate) x: fn(&C) -> usize,
    /// Cases with different values have separate plots: `1-worker`.
    pub(crate) part: fn(&C) -> String,
}

/// Writes the plots; returns the names of the files.
pub(super) fn write<E: Experiment>(
    folder: &Path,
    about: &About,
    rows: &[Row<E::Case, E::Figures>],
) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for plot in E::plots() {
        let parts: BTreeSet<String> = rows.iter().map(|row| (plot.part)(&row.case)).collect();
        for part in parts {
            let of_part: Vec<&Row<_, _>> =
                rows.iter().filter(|row| row.checked && (plot.part)(&row.case) == part).collect();
            let Some(first) = of_part.first() else { continue };
            let title = E::title(&first.case);
            let title = if E::TITLES_NAME_PARTS { title } else { format!("{title}; {part}") };
            let chart = chart::<E>(&plot, about, &of_part, title);
            let name = format!("{}-{}-{}", E::NAME, plot.stem, part.replace(' ', "-"));
            files.push(write_chart(folder, name.trim_end_matches('-'), &chart)?);
        }
    }
    Ok(files)
}

/// Writes one chart: lines, or bars for only one group or few numbers of workers.
pub(super) fn write_chart(folder: &Path, name: &str, chart: &Chart) -> Result<PathBuf> {
    let file = folder.join(format!("{name}.svg"));
    let svg = if chart.as_bars() { chart.bars() } else { chart.lines() };
    let svg = svg.with_context(|| format!("cannot draw {}", file.display()))?;
    std::fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Writes curves over a scale.
pub(super) fn write_curves(folder: &Path, name: &str, curves: &Curves) -> Result<PathBuf> {
    let file = folder.join(format!("{name}.svg"));
    let svg = curves.svg().with_context(|| format!("cannot draw {}", file.display()))?;
    std::fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

fn chart<E: Experiment>(
    plot: &Plot<E::Case, E::Figures>,
    about: &About,
    rows: &[&Row<E::Case, E::Figures>],
    title: String,
) -> Chart {
    let groups: BTreeSet<usize> = rows.iter().map(|row| (plot.x)(&row.case)).collect();
    let groups: Vec<usize> = groups.into_iter().collect();
    let runs = rows.iter().map(|row| row.run + 1).max().unwrap_or(0);
    let mut series = Vec::new();
    for peer in E::PEERS {
        let spread = |x: &usize| {
            let own = rows.iter().filter(|row| row.peer == *peer && (plot.x)(&row.case) == *x);
            Spread::of(own.filter_map(|row| row.figures.as_ref()).map(plot.figure).filter(|figure| figure.is_finite()))
        };
        let points: Vec<Option<Spread>> = groups.iter().map(spread).collect();
        if points.iter().any(Option::is_some) {
            series.push(Series { label: name(*peer), style: peer.style(), points });
        }
    }
    Chart {
        title,
        footer: format!(
            "{}; kernel {}; commit {}; {}: median, with least and most",
            about.machine,
            about.kernel,
            about.commit,
            runs_text(runs)
        ),
        x_title: plot.x_title.to_owned(),
        y_title: plot.y_title.to_owned(),
        // Bars cannot be drawn on an axis without a zero.
        y_log: plot.y_log && groups.len() > 1,
        groups,
        group_names: Vec::new(),
        series,
        bars_wanted: false,
    }
}
