//! Lines and bars over groups, as SVG.
//!
//! Numbers of workers and similar values are placed at equal distances, as words are: on a linear
//! scale, 16 would press 1 and 2 together, where most changes happen.

mod curves;

pub(crate) use curves::{Curve, Curves, Panel, Point};

use crate::stats::median;
use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;
use std::path::Path;

/// The content of a chart.
pub(crate) struct Chart {
    /// One line above the chart.
    pub(crate) title: String,
    /// Small print below it.
    pub(crate) footer: String,
    /// The quantity of the groups.
    pub(crate) x_title: String,
    /// The measured quantity, and its unit.
    pub(crate) y_title: String,
    /// Whether each step up the axis is a factor; lines only.
    pub(crate) y_log: bool,
    /// The groups along the horizontal axis.
    pub(crate) groups: Vec<usize>,
    /// Their names, if they are not numbers; otherwise empty.
    pub(crate) group_names: Vec<String>,
    /// The compared series.
    pub(crate) series: Vec<Series>,
    /// Bars even where lines are possible.
    pub(crate) bars_wanted: bool,
}

/// One line, or the bars of one color.
pub(crate) struct Series {
    /// Its name in the legend.
    pub(crate) label: String,
    /// Its place in the palette.
    pub(crate) style: usize,
    /// One for each group; `None` without a measurement.
    pub(crate) points: Vec<Option<Spread>>,
}

/// The spread of several runs of the same case.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// The spread of these values; `None` without any.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Spread> {
        let values: Vec<f64> = values.collect();
        (!values.is_empty()).then(|| Spread {
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            median: median(&values),
            most: values.iter().copied().fold(0.0, f64::max),
        })
    }
}

/// Makes a folder for plots, and checks that it is writable: before the runs, not after them.
pub(crate) fn make_plot_folder(folder: &Path) -> Result<()> {
    let problem = || format!("cannot write plots to {}: pass a folder that you may write to", folder.display());
    std::fs::create_dir_all(folder).with_context(problem)?;
    tempfile::tempfile_in(folder).with_context(problem)?;
    Ok(())
}

/// The number of groups that can be named along the horizontal axis.
const KEY_POINTS_MAX: usize = 24;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Groups, RangedCoordf64>>;

const SIZE: (u32, u32) = (960, 540);
const LEGEND_WIDTH: u32 = 200;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 40, 40);
const PALE: RGBColor = RGBColor(225, 225, 225);

/// Okabe and Ito's palette, which color-blind people can distinguish; two shades of one color for a
/// peer with two placements. The last ones are for peers that only `colors` has.
const PALETTE: [RGBColor; 13] = [
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(136, 68, 119),
    RGBColor(214, 150, 190),
    RGBColor(153, 153, 51),
    RGBColor(90, 90, 90),
    RGBColor(0, 95, 70),
    RGBColor(120, 190, 90),
    RGBColor(170, 170, 170),
    RGBColor(140, 20, 40),
];

impl Chart {
    /// Whether it is drawn as bars: one group, or one number of workers each.
    pub(crate) fn as_bars(&self) -> bool {
        self.groups.len() < 2 || self.bars_wanted
    }

    /// A line for each series, with a bar from the least to the most at each point.
    pub(crate) fn lines(&self) -> Result<String> {
        self.draw(Chart::draw_lines)
    }

    /// Bars with the median written above each.
    pub(crate) fn bars(&self) -> Result<String> {
        self.draw(Chart::draw_bars)
    }

    fn draw(&self, content: impl Fn(&Chart, &mut Plane) -> Result<()>) -> Result<String> {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE).map_err(drawing)?;
            let left = (20, 14);
            root.draw(&Text::new(self.title.clone(), left, text(18, HPos::Left, VPos::Top))).map_err(drawing)?;
            let below = (20, SIZE.1 as i32 - 10);
            root.draw(&Text::new(self.footer.clone(), below, text(12, HPos::Left, VPos::Bottom))).map_err(drawing)?;
            let (_, rest) = root.split_vertically(44);
            let (rest, _) = rest.split_vertically(SIZE.1 - 44 - 30);
            let (plot, legend) = rest.split_horizontally(SIZE.0 - LEGEND_WIDTH);
            self.draw_legend(&legend)?;
            content(self, &mut self.plane(&plot)?)?;
            root.present().map_err(drawing)?;
        }
        Ok(svg)
    }

    /// Axes, titles and grid.
    fn plane<'a, 'b>(&self, area: &'a Area<'b>) -> Result<Plane<'a, 'b>> {
        let mut plane = ChartBuilder::on(area)
            .margin_left(14)
            .margin_right(10)
            .margin_top(6)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(Groups(self.group_texts()), self.y_range())
            .map_err(drawing)?;
        plane
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(PALE)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .x_desc(self.x_title.clone())
            .y_desc(self.y_title.clone())
            .axis_desc_style((FONT, 14).into_font().color(&INK))
            .label_style((FONT, 13).into_font().color(&INK))
            .y_label_formatter(&|y| short(if self.y_log { 10_f64.powf(*y) } else { *y }))
            .draw()
            .map_err(drawing)?;
        Ok(plane)
    }

    fn group_texts(&self) -> Vec<String> {
        match self.group_names.is_empty() {
            true => self.groups.iter().map(usize::to_string).collect(),
            false => self.group_names.clone(),
        }
    }

    /// From zero to the largest value; with `y_log`, powers of ten from the least to the largest.
    fn y_range(&self) -> Range<f64> {
        let all = || self.series.iter().flat_map(|series| series.points.iter().flatten());
        let most = all().map(|spread| spread.most).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        if !self.y_log {
            return 0.0..most * 1.08;
        }
        let least = all().map(|spread| spread.least).filter(|least| *least > 0.0).fold(most, f64::min);
        least.log10() - 0.1..most.log10() + 0.1
    }

    /// The position of a value on the vertical axis.
    fn y(&self, value: f64) -> f64 {
        if self.y_log { value.max(f64::MIN_POSITIVE).log10() } else { value }
    }

    fn draw_legend(&self, area: &Area) -> Result<()> {
        for (index, series) in self.series.iter().enumerate() {
            let y = 20 + 24 * index as i32;
            let ink = PALETTE[series.style % PALETTE.len()];
            area.draw(&Rectangle::new([(8, y - 6), (24, y + 6)], ink.filled())).map_err(drawing)?;
            let label = Text::new(series.label.clone(), (32, y), text(13, HPos::Left, VPos::Center));
            area.draw(&label).map_err(drawing)?;
        }
        Ok(())
    }

    fn draw_lines(&self, plane: &mut Plane) -> Result<()> {
        // The first series last, so that it lies on top.
        for (order, series) in self.series.iter().enumerate().rev() {
            let ink = PALETTE[series.style % PALETTE.len()];
            let width = if series.style < 2 { 3 } else { 2 };
            // Slightly offset from each other, so that no spread hides another.
            let aside = (order as f64 - (self.series.len() - 1) as f64 / 2.0) * 0.018;
            let points = series.points.iter().enumerate();
            let points: Vec<(f64, Spread)> =
                points.filter_map(|(index, spread)| Some((index as f64 + aside, (*spread)?))).collect();
            let line = points.iter().map(|&(x, spread)| (x, self.y(spread.median)));
            plane.draw_series(LineSeries::new(line.clone(), ink.stroke_width(width))).map_err(drawing)?;
            // Dots that touch each other would hide the line.
            let dot = if points.len() > KEY_POINTS_MAX { 1 } else { 4 };
            plane.draw_series(line.map(|point| Circle::new(point, dot, ink.filled()))).map_err(drawing)?;
            let ends = |x, spread: Spread| [(x, self.y(spread.least)), (x, self.y(spread.most))];
            let spreads = points.iter().map(|&(x, spread)| PathElement::new(ends(x, spread), ink));
            plane.draw_series(spreads).map_err(drawing)?;
        }
        Ok(())
    }

    fn draw_bars(&self, plane: &mut Plane) -> Result<()> {
        let width = 0.84 / self.series.len().max(1) as f64;
        for (order, series) in self.series.iter().enumerate() {
            let ink = PALETTE[series.style % PALETTE.len()];
            for (index, spread) in series.points.iter().enumerate() {
                let Some(spread) = spread else { continue };
                let left = index as f64 - 0.42 + width * order as f64;
                let bar = Rectangle::new([(left, 0.0), (left + width * 0.9, spread.median)], ink.filled());
                let above = (left + width * 0.45, spread.median);
                let value = EmptyElement::at(above)
                    + Text::new(short(spread.median), (0, -3), text(11, HPos::Center, VPos::Bottom));
                plane.draw_series([bar]).map_err(drawing)?;
                plane.draw_series([value]).map_err(drawing)?;
            }
        }
        Ok(())
    }
}

/// The horizontal axis: a place for each group, 1.0 apart.
struct Groups(Vec<String>);

impl Ranged for Groups {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (left, right): (i32, i32)) -> i32 {
        let share = (value + 0.5) / self.0.len() as f64;
        left + (share * f64::from(right - left)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.0.len()).step_by(self.0.len().div_ceil(KEY_POINTS_MAX).max(1)).map(|index| index as f64).collect()
    }

    fn range(&self) -> Range<f64> {
        -0.5..self.0.len() as f64 - 0.5
    }
}

impl ValueFormatter<f64> for Groups {
    fn format_ext(&self, value: &f64) -> String {
        self.0.get(value.round() as usize).cloned().unwrap_or_default()
    }
}

fn text(size: i32, h_pos: HPos, v_pos: VPos) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK).pos(Pos::new(h_pos, v_pos))
}

/// A number with the decimals that matter.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 1.0 => format!("{value:.2}"),
        size if size < 10.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Drawing errors have various types and say little; the caller adds the file's name.
fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 0.256, 2.56, 25.6, 2560.0].map(short), ["0", "0.26", "2.6", "26", "2560"]);
    }

    #[test]
    fn empty_chart_is_drawn() {
        let chart = Chart {
            title: "nothing".to_owned(),
            footer: String::new(),
            x_title: "workers".to_owned(),
            y_title: "ns".to_owned(),
            y_log: false,
            groups: vec![1],
            group_names: Vec::new(),
            series: Vec::new(),
            bars_wanted: false,
        };
        assert!(chart.lines().is_ok_and(|svg| svg.contains("nothing")));
        assert!(chart.bars().is_ok());
        assert!(Chart { y_log: true, ..chart }.lines().is_ok());
    }

    #[test]
    fn a_logarithmic_axis_spans_all_values() {
        let spread = |value| Some(Spread { least: value, median: value, most: value });
        let series = Series { label: "a".to_owned(), style: 0, points: vec![spread(10.0), spread(1_000.0)] };
        let chart = Chart {
            title: String::new(),
            footer: String::new(),
            x_title: "in flight".to_owned(),
            y_title: "ms".to_owned(),
            y_log: true,
            groups: vec![1, 2],
            group_names: Vec::new(),
            series: vec![series],
            bars_wanted: false,
        };
        assert_eq!(chart.y_range(), 0.9..3.1);
        let svg = chart.lines().expect("the chart is drawn");
        let has_line = |text: &str| svg.lines().any(|line| line.trim() == text);
        assert!(has_line("in flight") && has_line("10") && has_line("100") && has_line("1000"), "{svg}");
    }
}
