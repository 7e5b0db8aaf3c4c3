//! The origin's objects: of mixed sizes, and only a few are popular.

use crate::rng::Rng;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// All objects. Their bodies are cut from one pattern that is used as a ring, so that every byte
/// can be compared.
pub(super) struct Objects {
    folder: PathBuf,
}

/// The position of an object in the pattern, and its length.
#[derive(Clone, Copy)]
pub(super) struct Object {
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Objects {
    /// Writes the pattern, and the list for the load.
    pub(super) fn write(folder: &Path) -> Result<()> {
        let objects = Objects::at(folder);
        let problem = || format!("cannot write files to {}: set TMPDIR to another folder", folder.display());
        let mut rng = Rng::new(SEED);
        let pattern: Vec<u8> = (0..PATTERN_LEN / 8).flat_map(|_| rng.draw().to_le_bytes()).collect();
        std::fs::write(objects.pattern(), pattern).with_context(problem)?;
        let mut list = String::new();
        for (index, Object { start, len }) in all().into_iter().enumerate() {
            let weight = ((index + 1) as f64).powf(-ZIPF);
            let _ = writeln!(list, "{weight} /{index} {start} {len}");
        }
        std::fs::write(objects.list(), list).with_context(problem)
    }

    pub(super) fn at(folder: &Path) -> Objects {
        Objects { folder: folder.to_owned() }
    }

    pub(super) fn pattern(&self) -> PathBuf {
        self.folder.join("pattern")
    }

    pub(super) fn list(&self) -> PathBuf {
        self.folder.join("list")
    }

    /// The bytes of the pattern twice, so that each object is contiguous.
    pub(super) fn bytes(&self) -> Result<Arc<[u8]>> {
        let mut bytes = std::fs::read(self.pattern()).context("the pattern is not there")?;
        bytes.extend_from_within(..);
        Ok(bytes.into())
    }
}

/// Always the same ones, the most popular first. Eight of ten have 1 to 16 KB, the others up to
/// 128.
pub(super) fn all() -> Vec<Object> {
    let mut rng = Rng::new(SEED + 1);
    let object = |_| {
        let (low, high) = if rng.below(10) < 8 { (1_024, 16_384) } else { (16_385, 131_072) };
        Object { start: rng.index(PATTERN_LEN), len: rng.range(low, high) as usize }
    };
    (0..COUNT).map(object).collect()
}

const COUNT: usize = 3_000;
const SEED: u64 = 0x5eed;
/// Longer than any object.
const PATTERN_LEN: usize = 1 << 20;
/// A value that studies of proxies found (0.6 to 0.9).
const ZIPF: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::all;

    #[test]
    fn they_are_the_same_every_time_and_do_not_fit_into_the_caches() {
        let lens = |objects: Vec<super::Object>| objects.iter().map(|object| object.len).collect::<Vec<_>>();
        assert_eq!(lens(all()), lens(all()));
        let sum: usize = lens(all()).iter().sum();
        assert!((48 << 20..80 << 20).contains(&sum), "{sum} bytes");
    }
}
