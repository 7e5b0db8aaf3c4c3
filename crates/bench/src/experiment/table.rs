//! The tables: a row for each case and peer, medians of all runs.

use super::{Experiment, Row};
use crate::stats::{Table, median, paired, ratio_text};
use crate::words::{checked, name};

/// A figure in a table.
pub(crate) struct Column<F> {
    pub(crate) head: &'static str,
    pub(crate) figure: fn(&F) -> f64,
    pub(crate) decimals: usize,
}

type Rows<'a, E> = [&'a Row<<E as Experiment>::Case, <E as Experiment>::Figures>];

/// One table for each title, in the order of the cases.
pub(super) fn tables<E: Experiment>(rows: &[Row<E::Case, E::Figures>]) -> Vec<(String, Table)> {
    let mut cases: Vec<&E::Case> = Vec::new();
    for row in rows {
        if !cases.contains(&&row.case) {
            cases.push(&row.case);
        }
    }
    let mut titles: Vec<String> = Vec::new();
    for case in &cases {
        let title = E::title(case);
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    let of_title = |title: &String| cases.iter().copied().filter(|case| E::title(case) == *title).collect::<Vec<_>>();
    titles.iter().map(|title| (title.clone(), table::<E>(rows, &of_title(title)))).collect()
}

fn table<E: Experiment>(rows: &[Row<E::Case, E::Figures>], cases: &[&E::Case]) -> Table {
    let Some(first) = cases.first() else { return Table::new(&[]) };
    let columns = E::columns();
    let mut head = vec!["peer"];
    head.extend(E::labels(first).iter().map(|(label, _)| *label));
    head.extend(columns.iter().map(|column| column.head));
    let compared = E::one_worker(first).is_some();
    if compared {
        head.push("to 1 worker");
    }
    head.push("checked");
    let mut table = Table::new(&head);
    for peer in E::PEERS {
        for case in cases {
            let of =
                |case: &E::Case| rows.iter().filter(|row| row.peer == *peer && row.case == *case).collect::<Vec<_>>();
            let own = of(case);
            if own.is_empty() {
                continue;
            }
            let mut cells = vec![name(*peer)];
            cells.extend(E::labels(case).into_iter().map(|(_, value)| value));
            cells.extend(columns.iter().map(|column| cell(column, &figures::<E>(&own, column.figure))));
            if compared {
                let base = E::one_worker(case).filter(|base| base != *case).map(|base| of(&base)).unwrap_or_default();
                cells.push(compare::<E>(&own, &base));
            }
            cells.push(checked(own.iter().map(|row| row.checked)));
            table.row(cells);
        }
    }
    table
}

fn figures<E: Experiment>(rows: &Rows<'_, E>, figure: fn(&E::Figures) -> f64) -> Vec<f64> {
    rows.iter().filter_map(|row| row.figures.as_ref()).map(figure).collect()
}

/// The ratio of the first column to that with one worker, from runs with both.
fn compare<E: Experiment>(own: &Rows<'_, E>, base: &Rows<'_, E>) -> String {
    let Some(column) = E::columns().into_iter().next() else { return String::new() };
    let figure = |row: &Row<E::Case, E::Figures>| row.figures.as_ref().map_or(f64::NAN, column.figure);
    ratio_text(paired(&measured::<E>(own), &measured::<E>(base), |row| row.run, figure))
}

fn measured<'a, E: Experiment>(rows: &[&'a Row<E::Case, E::Figures>]) -> Vec<&'a Row<E::Case, E::Figures>> {
    rows.iter().copied().filter(|row| row.figures.is_some()).collect()
}

fn cell<F>(column: &Column<F>, values: &[f64]) -> String {
    match median(values) {
        middle if middle.is_nan() => "-".to_owned(),
        middle => format!("{middle:.*}", column.decimals),
    }
}
