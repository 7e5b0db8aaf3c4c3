//! The drawing of the crates and their dependencies, as an SVG file, from cargo's metadata.

use crate::tidy::SERVICES;
use crate::workspace::Workspace;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// The file of the drawing, from the root.
const PATH: &str = "docs/img/crates.svg";
/// Crates that are not part of any program. The services are left out, too: all stand on `dapple`.
const LEFT_OUT: &[&str] = &["bench", "ecosystem", "rpc", "soak", "xtask"];

const BOX_WIDTH: usize = 132;
const BOX_HEIGHT: usize = 34;
const COLUMN_WIDTH: usize = 152;
const POINT_WIDTH: usize = 40;
const ROW_HEIGHT: usize = 84;
const MARGIN: usize = 20;

/// Each crate, with the workspace crates that it depends on.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Writes the drawing.
pub(crate) fn run() -> Result<bool, String> {
    let workspace = Workspace::own()?;
    let path = workspace.root.join(PATH);
    let mut packages = workspace.packages.clone();
    packages.retain(|package| {
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        !workspace.relative(Path::new(manifest)).starts_with(SERVICES)
    });
    std::fs::write(&path, svg(&reduced(&uses(&packages)))).map_err(|error| format!("cannot write {PATH}: {error}"))?;
    println!("{PATH}");
    Ok(true)
}

/// Without test and build dependencies.
fn uses(packages: &[Value]) -> Uses {
    let name = |package: &Value| package["name"].as_str().unwrap_or_default().to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).filter(|name| !LEFT_OUT.contains(&name.as_str())).collect();
    let used = |package: &Value| {
        let all = package["dependencies"].as_array().into_iter().flatten();
        let built = all.filter(|dependency| dependency["kind"].is_null()).map(name);
        built.filter(|name| ours.contains(name)).collect::<BTreeSet<String>>()
    };
    packages.iter().map(|package| (name(package), used(package))).filter(|(name, _)| ours.contains(name)).collect()
}

/// The transitive reduction: without edges that follow from others.
fn reduced(uses: &Uses) -> Uses {
    let follows = |name: &str, used: &str| {
        uses[name].iter().any(|between| between.as_str() != used && reaches(uses, between, used))
    };
    let kept = |(name, used): (&String, &BTreeSet<String>)| {
        (name.clone(), used.iter().filter(|used| !follows(name, used)).cloned().collect())
    };
    uses.iter().map(kept).collect()
}

fn reaches(uses: &Uses, from: &str, to: &str) -> bool {
    uses[from].contains(to) || uses[from].iter().any(|next| reaches(uses, next, to))
}

/// The row of each crate from the bottom: directly below the lowest crate that uses it.
fn levels(uses: &Uses) -> BTreeMap<String, usize> {
    fn height(uses: &Uses, name: &str) -> usize {
        uses[name].iter().map(|used| height(uses, used) + 1).max().unwrap_or(0)
    }
    fn level(uses: &Uses, name: &str) -> usize {
        let users = uses.iter().filter(|(_, used)| used.contains(name));
        users.map(|(user, _)| level(uses, user) - 1).min().unwrap_or_else(|| height(uses, name))
    }
    uses.keys().map(|name| (name.clone(), level(uses, name))).collect()
}

/// A point where a line passes a row, named after the crate that it leads to.
fn point(to: &str, level: usize) -> String {
    format!("{to}@{level}")
}

/// Adds a point in each row that a line passes; returns all rows from the top down. A crate or
/// point is near the middle of those above it.
fn laid_out(uses: &Uses) -> (Uses, Vec<Vec<String>>) {
    let levels = levels(uses);
    let top = levels.values().copied().max().unwrap_or(0);
    let mut rows = vec![Vec::new(); top + 1];
    let mut lines = Uses::new();
    for (name, level) in &levels {
        rows[top - level].push(name.clone());
        lines.entry(name.clone()).or_default();
        for used in &uses[name] {
            let mut from = name.clone();
            for passed in (levels[used] + 1..*level).rev() {
                let next = point(used, passed);
                lines.entry(from).or_default().insert(next.clone());
                if !rows[top - passed].contains(&next) {
                    rows[top - passed].push(next.clone());
                }
                from = next;
            }
            lines.entry(from).or_default().insert(used.clone());
        }
    }
    for row in 1..rows.len() {
        let (above, here) = rows.split_at_mut(row);
        let above = &above[row - 1];
        let place = |name: &str| {
            let users: Vec<usize> = (0..above.len()).filter(|index| lines[&above[*index]].contains(name)).collect();
            (users.iter().sum::<usize>() * 100 / users.len().max(1), name.to_owned())
        };
        here[0].sort_by_key(|name| place(name));
    }
    (lines, rows)
}

fn svg(uses: &Uses) -> String {
    let (lines, rows) = laid_out(uses);
    let room = |name: &String| if uses.contains_key(name) { COLUMN_WIDTH } else { POINT_WIDTH };
    let width_of = |row: &Vec<String>| row.iter().map(room).sum::<usize>();
    let width = rows.iter().map(width_of).max().unwrap_or(0) + 2 * MARGIN;
    let height = rows.len() * ROW_HEIGHT + MARGIN;
    let mut place: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (row, names) in rows.iter().enumerate() {
        let mut left = (width - width_of(names)) / 2;
        for name in names {
            place.insert(name, (left + room(name) / 2, MARGIN + row * ROW_HEIGHT));
            left += room(name);
        }
    }
    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-labelledby="t d">
<title id="t">The crates of Dapple</title>
<desc id="d">Each crate uses the crates below it that a line leads to, and those which these use.</desc>
<style>
.bg{{fill:#fff}}.ink{{fill:#1f2328;text-anchor:middle}}.box{{fill:#ddf4ff;stroke:#0969da}}.l{{stroke:#8c959f;fill:none}}
text{{font:13px ui-sans-serif,system-ui,"Segoe UI",Helvetica,Arial,sans-serif}}
@media (prefers-color-scheme:dark){{.bg{{fill:#0d1117}}.ink{{fill:#f0f6fc}}.box{{fill:#121d2f;stroke:#58a6ff}}}}
</style>
<rect class="bg" width="{width}" height="{height}"/>
"#
    );
    for (name, used) in &lines {
        for below in used {
            let ((x, y), (to_x, to_y)) = (place[name.as_str()], place[below.as_str()]);
            let y = y + BOX_HEIGHT;
            let middle = (y + to_y) / 2;
            // A point is a line as high as a box.
            let end = if uses.contains_key(below) { String::new() } else { format!("v{BOX_HEIGHT}") };
            let _ = writeln!(out, r#"<path class="l" d="M{x} {y}C{x} {middle},{to_x} {middle},{to_x} {to_y}{end}"/>"#);
        }
    }
    for name in uses.keys() {
        let (x, y) = place[name.as_str()];
        let (left, middle) = (x - BOX_WIDTH / 2, y + 22);
        let _ = writeln!(
            out,
            r#"<rect class="box" x="{left}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/><text class="ink" x="{x}" y="{middle}">{name}</text>"#
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses_of(pairs: &[(&str, &[&str])]) -> Uses {
        let set = |used: &[&str]| used.iter().map(|name| (*name).to_owned()).collect();
        pairs.iter().map(|(name, used)| ((*name).to_owned(), set(used))).collect()
    }

    #[test]
    fn a_line_that_follows_from_others_is_not_drawn() {
        let uses = reduced(&uses_of(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]));
        assert_eq!(uses, uses_of(&[("a", &["b"]), ("b", &["c"]), ("c", &[])]));
        assert_eq!(laid_out(&uses).1, [["a"], ["b"], ["c"]]);
        assert_eq!(svg(&uses).matches("<path").count(), 2);
    }

    #[test]
    fn a_long_line_passes_beside_the_boxes_between() {
        let uses = uses_of(&[("a", &["b", "d"]), ("b", &["c"]), ("c", &[]), ("d", &["e"]), ("e", &["c"])]);
        let (lines, rows) = laid_out(&uses);
        assert_eq!(rows, [vec!["a"], vec!["b", "d"], vec!["c@1", "e"], vec!["c"]]);
        assert!(lines["b"].contains("c@1"), "{lines:?}");
    }

    #[test]
    fn tests_need_what_they_like() {
        let json = r#"[{"name":"a","dependencies":[{"name":"b","kind":null},{"name":"c","kind":"dev"}]},
            {"name":"b","dependencies":[]},{"name":"c","dependencies":[]},{"name":"bench","dependencies":[]}]"#;
        let packages: Vec<Value> = serde_json::from_str(json).expect("JSON");
        assert_eq!(uses(&packages), uses_of(&[("a", &["b"]), ("b", &[]), ("c", &[])]));
    }
}
