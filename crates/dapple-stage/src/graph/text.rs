//! A graph as lines of text.

use std::fmt::{self, Write};

use super::view::{NodeView, View};

/// Writes one line for each node, followed by its targets.
pub(crate) fn write(view: &View, out: &mut dyn Write) -> fmt::Result {
    let width = view.nodes.iter().map(|node| node.name.chars().count()).max().unwrap_or(0);
    for (number, node) in view.nodes.iter().enumerate() {
        write!(out, "{:width$}", printable(&node.name))?;
        for line in numbers(node) {
            write!(out, "  {line}")?;
        }
        writeln!(out)?;
        for (_, to, how) in view.links.iter().filter(|(from, ..)| *from == number) {
            writeln!(out, "  {how} → {}", printable(&view.nodes[*to].name))?;
        }
    }
    Ok(())
}

/// The numbers of a node as short phrases.
pub(crate) fn numbers(node: &NodeView) -> Vec<String> {
    let Some(stats) = &node.stats else { return Vec::new() };
    let mut lines = vec![
        format!("{} of {} wait", stats.queue_len, stats.queue_len_max),
        format!("{} of {} in service", stats.in_service, stats.width),
        format!("{} served, {} refused", stats.served, stats.refused),
    ];
    if stats.queue_len_max == usize::MAX {
        lines[0] = format!("{} wait", stats.queue_len);
    }
    if stats.panicked + stats.restarts > 0 {
        lines.push(format!("{} panics, {} restarts", stats.panicked, stats.restarts));
    }
    lines.push(stats.status.to_string());
    lines
}

/// The name without characters that would break a line.
pub(crate) fn printable(name: &str) -> String {
    name.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}
