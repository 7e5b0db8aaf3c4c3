//! Curves over a scale, as SVG: adjacent panels, with the varied parameter written at the points.

use super::{FONT, INK, LEGEND_WIDTH, PALE, PALETTE, Spread, drawing, short, text};
use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use std::ops::Range;

/// The content of the drawing.
pub(crate) struct Curves {
    /// One line above the drawing.
    pub(crate) title: String,
    /// Small print below it.
    pub(crate) footer: String,
    /// From left to right. Curves with the same place in the palette have the same name in all
    /// panels.
    pub(crate) panels: Vec<Panel>,
}

/// One pair of axes.
pub(crate) struct Panel {
    /// The quantity along the horizontal axis, and its unit.
    pub(crate) x_title: String,
    /// The quantity along the vertical axis, and its unit.
    pub(crate) y_title: String,
    /// Whether each step to the right is a factor.
    pub(crate) x_log: bool,
    /// Whether each step up is a factor.
    pub(crate) y_log: bool,
    /// Whether the labels of points are written.
    pub(crate) labeled: bool,
    /// The compared curves.
    pub(crate) curves: Vec<Curve>,
}

/// One line.
pub(crate) struct Curve {
    /// Its name in the legend.
    pub(crate) label: String,
    /// Its place in the palette.
    pub(crate) style: usize,
    /// In the order in which they are joined.
    pub(crate) points: Vec<Point>,
}

/// One point, with the spread of the runs in both directions.
pub(crate) struct Point {
    pub(crate) x: Spread,
    pub(crate) y: Spread,
    /// The text next to it.
    pub(crate) label: String,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Curves {
    /// The drawing.
    pub(crate) fn svg(&self) -> Result<String> {
        let panel_width = if self.panels.len() > 1 { PANEL_WIDTH } else { PANEL_WIDTH_ALONE };
        let size = (self.panels.len().max(1) as u32 * panel_width + LEGEND_WIDTH, HEIGHT);
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            root.fill(&WHITE).map_err(drawing)?;
            let title = Text::new(self.title.clone(), (20, 14), text(18, HPos::Left, VPos::Top));
            root.draw(&title).map_err(drawing)?;
            let below = (20, size.1 as i32 - 10);
            root.draw(&Text::new(self.footer.clone(), below, text(12, HPos::Left, VPos::Bottom))).map_err(drawing)?;
            let (_, rest) = root.split_vertically(44);
            let (rest, _) = rest.split_vertically(size.1 - 44 - 30);
            let (plots, legend) = rest.split_horizontally(size.0 - LEGEND_WIDTH);
            self.draw_legend(&legend)?;
            for (panel, area) in self.panels.iter().zip(plots.split_evenly((1, self.panels.len().max(1)))) {
                panel.draw(&area)?;
            }
            root.present().map_err(drawing)?;
        }
        Ok(svg)
    }

    fn draw_legend(&self, area: &Area) -> Result<()> {
        let mut named: Vec<(usize, &str)> = Vec::new();
        for curve in self.panels.iter().flat_map(|panel| &panel.curves) {
            if !named.iter().any(|(style, _)| *style == curve.style) {
                named.push((curve.style, &curve.label));
            }
        }
        for (index, (style, label)) in named.into_iter().enumerate() {
            let y = 20 + 24 * index as i32;
            let ink = PALETTE[style % PALETTE.len()];
            area.draw(&Rectangle::new([(8, y - 6), (24, y + 6)], ink.filled())).map_err(drawing)?;
            let label = Text::new(label.to_owned(), (32, y), text(13, HPos::Left, VPos::Center));
            area.draw(&label).map_err(drawing)?;
        }
        Ok(())
    }
}

impl Panel {
    fn draw(&self, area: &Area) -> Result<()> {
        let x_range = range(self.x_log, self.points().map(|point| point.x));
        let y_range = range(self.y_log, self.points().map(|point| point.y));
        let mut plane = ChartBuilder::on(area)
            .margin_left(14)
            .margin_right(24)
            .margin_top(6)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x_range, y_range)
            .map_err(drawing)?;
        plane
            .configure_mesh()
            .bold_line_style(PALE)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .x_desc(self.x_title.clone())
            .y_desc(self.y_title.clone())
            .axis_desc_style((FONT, 14).into_font().color(&INK))
            .label_style((FONT, 13).into_font().color(&INK))
            .x_label_formatter(&|x| short(value(self.x_log, *x)))
            .y_label_formatter(&|y| short(value(self.y_log, *y)))
            .draw()
            .map_err(drawing)?;
        let (x, y) = (|of: f64| place(self.x_log, of), |of: f64| place(self.y_log, of));
        // The first curve last, so that it lies on top.
        for curve in self.curves.iter().rev() {
            let ink = PALETTE[curve.style % PALETTE.len()];
            let line = curve.points.iter().map(|point| (x(point.x.median), y(point.y.median)));
            plane.draw_series(LineSeries::new(line.clone(), ink.stroke_width(2))).map_err(drawing)?;
            plane.draw_series(line.map(|point| Circle::new(point, 3, ink.filled()))).map_err(drawing)?;
            let spreads = curve.points.iter().flat_map(|point| {
                let (middle_x, middle_y) = (x(point.x.median), y(point.y.median));
                [
                    [(x(point.x.least), middle_y), (x(point.x.most), middle_y)],
                    [(middle_x, y(point.y.least)), (middle_x, y(point.y.most))],
                ]
            });
            plane.draw_series(spreads.map(|ends| PathElement::new(ends, ink))).map_err(drawing)?;
            let labels = curve.points.iter().filter(|_| self.labeled).map(|point| {
                EmptyElement::at((x(point.x.median), y(point.y.median)))
                    + Text::new(point.label.clone(), (6, -4), text(11, HPos::Left, VPos::Bottom))
            });
            plane.draw_series(labels).map_err(drawing)?;
        }
        Ok(())
    }

    fn points(&self) -> impl Iterator<Item = &Point> + Clone {
        self.curves.iter().flat_map(|curve| &curve.points)
    }
}

/// From zero to the largest value; for a logarithmic axis, from the least to the largest.
fn range(log: bool, spreads: impl Iterator<Item = Spread> + Clone) -> Range<f64> {
    let most = spreads.clone().map(|spread| spread.most).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    if !log {
        return 0.0..most * 1.08;
    }
    let least = spreads.map(|spread| spread.least).filter(|least| *least > 0.0).fold(most, f64::min);
    place(true, least) - 0.2..place(true, most) + 0.2
}

/// The position of a value on an axis.
fn place(log: bool, value: f64) -> f64 {
    if log { value.max(f64::MIN_POSITIVE).log2() } else { value }
}

/// The value at a position.
fn value(log: bool, place: f64) -> f64 {
    if log { place.exp2() } else { place }
}

const PANEL_WIDTH: u32 = 520;
const PANEL_WIDTH_ALONE: u32 = 760;
const HEIGHT: u32 = 540;

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(x_log: bool, points: Vec<Point>) -> Panel {
        let curves = vec![Curve { label: "a curve".to_owned(), style: 0, points }];
        let (x_title, y_title) = ("tasks a second".to_owned(), "ms".to_owned());
        Panel { x_title, y_title, x_log, y_log: true, labeled: true, curves }
    }

    fn point(x: f64, y: f64, label: &str) -> Point {
        let spread = |value| Spread { least: value, median: value, most: value };
        Point { x: spread(x), y: spread(y), label: label.to_owned() }
    }

    #[test]
    fn points_are_named_and_the_curve_once() {
        let points = || vec![point(100.0, 1.0, "P=1"), point(900.0, 8.0, "P=8")];
        let panels = vec![panel(false, points()), panel(true, points())];
        let svg = Curves { title: "above".to_owned(), footer: "below".to_owned(), panels }.svg();
        let svg = svg.expect("the curves are drawn");
        let lines_with = |text: &str| svg.lines().filter(|line| line.trim() == text).count();
        assert_eq!((lines_with("P=1"), lines_with("P=8"), lines_with("a curve")), (2, 2, 1), "{svg}");
        assert!(lines_with("above") == 1 && lines_with("below") == 1, "{svg}");
    }

    #[test]
    fn nothing_is_drawn_too() {
        for x_log in [false, true] {
            let curves = Curves { title: String::new(), footer: String::new(), panels: vec![panel(x_log, Vec::new())] };
            assert!(curves.svg().is_ok());
        }
    }

    #[test]
    fn axes_hold_all_spreads() {
        let spreads = [Spread { least: 1.0, median: 2.0, most: 16.0 }, Spread { least: 0.0, median: 4.0, most: 8.0 }];
        assert_eq!(range(false, spreads.into_iter()), 0.0..16.0 * 1.08);
        assert_eq!(range(true, spreads.into_iter()), -0.2..4.2);
        assert_eq!(value(true, place(true, 64.0)), 64.0);
    }
}
