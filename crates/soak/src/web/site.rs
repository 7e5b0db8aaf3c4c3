//! The requested files.

use std::path::PathBuf;

use bytes::Bytes;
use soak::Dice;

/// See the [module](self); deleted on drop.
pub(crate) struct Site {
    pub(crate) folder: PathBuf,
    files: Vec<(String, Bytes)>,
}

/// A good request and its expected answer.
pub(crate) struct Want {
    pub(crate) method: &'static str,
    pub(crate) name: String,
    /// A header field.
    pub(crate) field: Option<(&'static str, String)>,
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl Site {
    /// Small files, and some that are too large for the cache.
    pub(crate) fn make() -> Result<Site, String> {
        let folder = std::env::temp_dir().join(format!("dapple-soak-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let lengths = [0, 1, 100, 4_000, 60_000, 300_000, 700_000, 3_000_000];
        let mut site = Site { folder, files: Vec::new() };
        for (number, len) in lengths.into_iter().enumerate() {
            let content = Dice::new(number as u64 + 1).bytes(len);
            let name = format!("{number}.bin");
            std::fs::write(site.folder.join(&name), &content).map_err(|error| format!("{name}: {error}"))?;
            site.files.push((name, content.into()));
        }
        Ok(site)
    }

    /// A random good request.
    pub(crate) fn want(&self, dice: &mut Dice) -> Want {
        let (name, content) = &self.files[dice.roll(self.files.len() as u64) as usize];
        let first = dice.roll(content.len().max(1) as u64) as usize;
        let (method, field, status, body) = match dice.roll(5) {
            0 if !content.is_empty() => {
                ("GET", Some(("range", format!("bytes={first}-"))), 206, content.slice(first..))
            }
            1 => ("HEAD", None, 200, Bytes::new()),
            2 => ("GET", Some(("if-none-match", "*".to_owned())), 304, Bytes::new()),
            _ => ("GET", None, 200, content.clone()),
        };
        Want { method, name: name.clone(), field, status, body }
    }

    /// The largest file.
    pub(crate) fn big(&self) -> &str {
        self.files.last().map_or("", |(name, _)| name)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
