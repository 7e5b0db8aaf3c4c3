//! A graph as a drawing: layers from left to right, a box for each node, a bar for the fill of its
//! queue.

use std::fmt::Write;

use super::text::{numbers, printable};
use super::view::{NodeView, View};
use crate::stage::Status;

/// The drawing.
pub(crate) fn draw(view: &View) -> String {
    let places = places(view);
    let width = places.iter().map(|(x, _)| x + BOX_WIDTH).max().unwrap_or(0) + MARGIN;
    let height = places.iter().map(|(_, y)| y + BOX_HEIGHT).max().unwrap_or(0) + MARGIN;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"#555555\"/></marker></defs>"
    );
    for (from, to, how) in &view.links {
        draw_link(&mut out, places[*from], places[*to], how);
    }
    for (node, place) in view.nodes.iter().zip(&places) {
        draw_node(&mut out, node, *place);
    }
    out.push_str("</svg>\n");
    out
}

/// The upper left corner of each node's box. Nodes of a layer are sorted by their senders'
/// positions, so that fewer links cross.
fn places(view: &View) -> Vec<(u32, u32)> {
    let mut rows = vec![0.0_f64; view.nodes.len()];
    let layers = view.nodes.iter().map(|node| node.layer).max().map_or(0, |last| last + 1);
    for layer in 0..layers {
        let mut members: Vec<usize> = (0..view.nodes.len()).filter(|node| view.nodes[*node].layer == layer).collect();
        let before = |node: usize| {
            let froms = view.links.iter().filter(|(from, to, _)| *to == node && view.nodes[*from].layer < layer);
            let rows: Vec<f64> = froms.map(|(from, ..)| rows[*from]).collect();
            if rows.is_empty() { node as f64 } else { rows.iter().sum::<f64>() / rows.len() as f64 }
        };
        members.sort_by(|one, other| before(*one).total_cmp(&before(*other)));
        for (row, node) in members.into_iter().enumerate() {
            rows[node] = row as f64;
        }
    }
    let place = |(node, row): (&NodeView, &f64)| {
        let x = MARGIN + node.layer as u32 * (BOX_WIDTH + GAP_X);
        let y = MARGIN + *row as u32 * (BOX_HEIGHT + GAP_Y);
        (x, y)
    };
    view.nodes.iter().zip(&rows).map(place).collect()
}

fn draw_link(out: &mut String, from: (u32, u32), to: (u32, u32), how: &str) {
    let (x, y) = (from.0 + BOX_WIDTH, from.1 + BOX_HEIGHT / 2);
    let (to_x, to_y) = (to.0, to.1 + BOX_HEIGHT / 2);
    // Links that lead back bend out further.
    let bend = if to_x > x { (to_x - x) / 2 } else { GAP_X * 2 };
    let (bent, to_bent) = (x + bend, i64::from(to_x) - i64::from(bend));
    let (middle_x, middle_y) = ((x + to_x) / 2, (y + to_y) / 2);
    let _ = writeln!(
        out,
        "<path d=\"M{x},{y} C{bent},{y} {to_bent},{to_y} {to_x},{to_y}\" fill=\"none\" stroke=\"#555555\" \
         marker-end=\"url(#tip)\"/>\n<text x=\"{middle_x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555555\">{}</text>",
        middle_y.saturating_sub(4),
        escape(how),
    );
}

fn draw_node(out: &mut String, node: &NodeView, (x, y): (u32, u32)) {
    let (fill, stroke) = match node.stats.as_ref().map(|stats| stats.status) {
        Some(Status::Running) => ("#eef6ee", "#2e7d32"),
        Some(Status::Resting) => ("#fff6e0", "#b26a00"),
        Some(Status::Out) => ("#fdecea", "#b71c1c"),
        Some(Status::Stopping) => ("#eceff1", "#546e7a"),
        None => ("#f5f5f5", "#757575"),
    };
    let _ = writeln!(
        out,
        "<g><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"6\" \
         fill=\"{fill}\" stroke=\"{stroke}\"/>\n<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>",
        escape(&node.name),
        x + PADDING,
        y + LINE,
        escape(&shortened(&node.name)),
    );
    for (number, line) in (1..).zip(numbers(node)) {
        let _ =
            writeln!(out, "<text x=\"{}\" y=\"{}\">{}</text>", x + PADDING, y + LINE + number * LINE, escape(&line));
    }
    if let Some(stats) = &node.stats {
        let full = (stats.queue_len as f64 / stats.queue_len_max.max(1) as f64).min(1.0);
        let tall = (full * f64::from(BOX_HEIGHT - 2 * PADDING)).round() as u32;
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{}\" width=\"{BAR}\" height=\"{tall}\" fill=\"{stroke}\"/>",
            x + BOX_WIDTH - PADDING - BAR,
            y + BOX_HEIGHT - PADDING - tall,
        );
    }
    out.push_str("</g>\n");
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_MAX {
        return name.to_owned();
    }
    let mut short: String = name.chars().take(NAME_MAX - 1).collect();
    short.push('…');
    short
}

/// Escapes text for XML text and attributes, and removes most control characters.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for char in printable(text).chars() {
        match char {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(char),
        }
    }
    escaped
}

const BOX_WIDTH: u32 = 200;
const BOX_HEIGHT: u32 = 106;
const GAP_X: u32 = 80;
const GAP_Y: u32 = 24;
const MARGIN: u32 = 24;
const PADDING: u32 = 10;
const LINE: u32 = 16;
const BAR: u32 = 8;
/// The number of characters that fit into a box.
const NAME_MAX: usize = 26;
