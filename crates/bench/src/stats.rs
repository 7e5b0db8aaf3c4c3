//! Medians and a plain text table.

/// The middle value; the mean of the two middle ones for an even number; NaN for none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// The median of the ratios of runs of the same repetition, in which drifts between repetitions
/// cancel out.
pub(crate) fn paired<T>(
    own: &[&T],
    base: &[&T],
    repetition: impl Fn(&T) -> usize,
    figure: impl Fn(&T) -> f64,
) -> Option<f64> {
    let ratios: Vec<f64> = own
        .iter()
        .filter_map(|run| {
            let other = base.iter().find(|other| repetition(other) == repetition(run))?;
            Some(figure(run) / figure(other))
        })
        .collect();
    (!ratios.is_empty()).then(|| median(&ratios))
}

/// Rows of text with aligned columns: the first to the left, the others to the right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with this head.
    pub(crate) fn new(head: &[&str]) -> Self {
        Table { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Appends a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as text, one line per row.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                if column == 0 {
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("  {cell:>width$}"));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// The table in Markdown.
    pub(crate) fn render_markdown(&self) -> String {
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            text.push_str(&format!("| {} |\n", row.join(" | ")));
            if index == 0 {
                text.push_str(&format!("|:-|{}\n", "-:|".repeat(row.len() - 1)));
            }
        }
        text
    }
}

/// A ratio for the table, or a dash if there is nothing to compare.
pub(crate) fn ratio_text(ratio: Option<f64>) -> String {
    match ratio {
        Some(ratio) if ratio.is_finite() => format!("{ratio:.2}x"),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_nothing() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn paired_ratios_are_of_the_same_repetition() {
        let (own, base) = ([(0, 2.0), (1, 9.0)], [(1, 3.0), (0, 1.0), (2, 1.0)]);
        let ratio = paired(&own.each_ref(), &base.each_ref(), |run| run.0, |run| run.1);
        assert_eq!(ratio, Some(2.5));
        assert_eq!(paired(&own.each_ref(), &[], |run| run.0, |run| run.1), None);
    }

    #[test]
    fn table_aligns_its_columns() {
        let mut table = Table::new(&["peer", "rate"]);
        table.row(vec!["a".into(), "1".into()]);
        assert_eq!(table.render(), "peer  rate\na        1\n");
    }
}
