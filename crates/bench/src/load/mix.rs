//! The requested paths, their weights, and the expected bodies.

use super::body::Body;
use crate::rng::Rng;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::sync::Arc;

/// One path.
pub(super) struct Item {
    /// Its path, as in the request.
    pub(super) path: String,
    /// The expected body; `None` if it is not known.
    pub(super) body: Option<Body>,
}

/// Paths, each drawn in proportion to its weight, in constant time (Walker's aliases).
pub(super) struct Mix {
    pub(super) items: Vec<Item>,
    /// For each slot: its own share, of 2^32, and the path that has the rest.
    slots: Vec<(u64, u32)>,
}

impl Mix {
    /// One path only.
    pub(super) fn of_path(path: &str) -> Mix {
        Mix { items: vec![Item { path: path.to_owned(), body: None }], slots: vec![(SHARES, 0)] }
    }

    /// All files below a folder, with equal weights, or by Zipf's law with this exponent, in the
    /// order of their names.
    pub(super) fn of_folder(folder: &Path, zipf: Option<f64>) -> Result<Mix> {
        let mut paths = Vec::new();
        list(folder, "", &mut paths)?;
        paths.sort();
        ensure!(!paths.is_empty(), "no file is in {}", folder.display());
        let weights: Vec<f64> =
            (1..=paths.len()).map(|rank| zipf.map_or(1.0, |exponent| (rank as f64).powf(-exponent))).collect();
        let items = paths.into_iter().map(|path| item_of_file(folder, path)).collect::<Result<_>>()?;
        Mix::new(items, &weights)
    }

    /// From a list with a line for each: weight and path, and for bodies cut from `pattern`, start
    /// and length.
    pub(super) fn of_list(text: &str, folder: Option<&Path>, pattern: Option<&Arc<[u8]>>) -> Result<Mix> {
        let (mut items, mut weights) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let advice = || format!("line {} of the list: write WEIGHT PATH, as in `0.5 /index.html`", index + 1);
            let mut words = line.split_whitespace();
            let weight: f64 = words.next().and_then(|word| word.parse().ok()).with_context(advice)?;
            let path = words.next().filter(|path| path.starts_with('/')).with_context(advice)?.to_owned();
            let numbers = words.map(str::parse).collect::<Result<Vec<u64>, _>>().ok().with_context(advice)?;
            items.push(match (pattern, numbers.as_slice(), folder) {
                (Some(pattern), [start, len], _) => {
                    let body = Body::cut(pattern, *start, *len).context("the pattern is empty")?;
                    Item { path, body: Some(body) }
                }
                (_, [], Some(folder)) => item_of_file(folder, path)?,
                _ => Item { path, body: None },
            });
            weights.push(weight);
        }
        ensure!(!items.is_empty(), "the list of paths is empty");
        Mix::new(items, &weights)
    }

    fn new(items: Vec<Item>, weights: &[f64]) -> Result<Mix> {
        let sum: f64 = weights.iter().sum();
        let usable = weights.iter().all(|weight| *weight >= 0.0) && sum.is_finite() && sum > 0.0;
        ensure!(usable, "weights are numbers from 0 on, of which one at least is above 0");
        Ok(Mix { slots: aliases(weights, sum), items })
    }

    /// The index of a random path.
    pub(super) fn draw(&self, rng: &mut Rng) -> usize {
        let number = rng.draw();
        let slot = (((number >> 32) * self.slots.len() as u64) >> 32) as usize;
        let (own, other) = self.slots[slot];
        if number & (SHARES - 1) < own { slot } else { other as usize }
    }
}

/// Fills every slot that has too little from one that has too much.
fn aliases(weights: &[f64], sum: f64) -> Vec<(u64, u32)> {
    let mut shares: Vec<f64> = weights.iter().map(|weight| weight / sum * weights.len() as f64).collect();
    let mut slots: Vec<(u64, u32)> = (0..weights.len()).map(|index| (SHARES, index as u32)).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..weights.len()).partition(|&index| shares[index] < 1.0);
    while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
        slots[poor] = ((shares[poor] * SHARES as f64) as u64, rich as u32);
        shares[rich] -= 1.0 - shares[poor];
        if shares[rich] < 1.0 {
            large.pop();
            small.push(rich);
        }
    }
    slots
}

const SHARES: u64 = 1 << 32;

fn item_of_file(folder: &Path, path: String) -> Result<Item> {
    let file = folder.join(path.trim_start_matches('/'));
    let bytes = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Item { path, body: Some(Body::whole(bytes)) })
}

fn list(folder: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let path = format!("{prefix}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &path, paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_drawn_by_its_weight() {
        let mix = Mix::of_list("50 /a\n0 /b\n35 /c\n15 /d\n", None, None).expect("a list");
        let mut counts = [0_u32; 4];
        let mut rng = Rng::new(7);
        (0..100_000).for_each(|_| counts[mix.draw(&mut rng)] += 1);
        for (count, due) in counts.iter().zip([50_000, 0, 35_000, 15_000]) {
            assert!(count.abs_diff(due) < 800, "{counts:?}");
        }
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        for (text, named) in [
            ("", "empty"),
            ("x /a", "line 1"),
            ("1 /a\n1 b", "line 2"),
            ("0 /a", "above 0"),
            ("-1 /a\n2 /b", "above 0"),
            ("1 /a x", "line 1"),
        ] {
            let error = Mix::of_list(text, None, None).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(named), "{text:?}: {error}");
        }
    }

    #[test]
    fn files_of_a_folder_and_their_bodies() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("d")).expect("a folder");
        std::fs::write(folder.path().join("d/b.txt"), "bee").expect("a file");
        std::fs::write(folder.path().join("a.txt"), "a").expect("a file");
        let mix = Mix::of_folder(folder.path(), Some(1.0)).expect("files");
        let paths: Vec<&str> = mix.items.iter().map(|item| item.path.as_str()).collect();
        assert_eq!(paths, ["/a.txt", "/d/b.txt"]);
        assert!(mix.items[1].body.as_ref().is_some_and(|body| body.holds(0, b"bee")));
        let pattern: Arc<[u8]> = Arc::from(&b"0123456789"[..]);
        let cut = Mix::of_list("1 /x 3 4", None, Some(&pattern)).expect("a list");
        assert!(cut.items[0].body.as_ref().is_some_and(|body| body.holds(0, b"3456")));
    }
}
