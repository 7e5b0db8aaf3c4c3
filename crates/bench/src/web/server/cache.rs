//! Files in memory, for the peers in Rust and Go without a cache of their own: read at the first
//! request, kept until there is no room, with recently used ones kept longer (second chance).

use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Files by request path. Cloning shares it.
#[derive(Clone)]
pub(super) struct Cache {
    root: Arc<PathBuf>,
    entries: Arc<RwLock<Entries>>,
    bytes_max: usize,
}

#[derive(Default)]
struct Entries {
    files: HashMap<String, Entry>,
    order: VecDeque<String>,
    bytes: usize,
}

struct Entry {
    body: Bytes,
    used: AtomicBool,
}

impl Cache {
    pub(super) fn new(root: PathBuf, bytes_max: usize) -> Cache {
        Cache { root: Arc::new(root), entries: Arc::default(), bytes_max }
    }

    /// The file, if it is in the cache.
    pub(super) fn find(&self, path: &str) -> Option<Bytes> {
        let entries = self.entries.read();
        let entry = entries.files.get(path)?;
        // Written only if the value changes: all workers share the cache line.
        if !entry.used.load(Relaxed) {
            entry.used.store(true, Relaxed);
        }
        Some(entry.body.clone())
    }

    /// Reads the file from the disk, which blocks, and keeps it. As in similar peers, each request
    /// that misses it reads it.
    pub(super) fn read(&self, path: &str) -> Option<Bytes> {
        // This stops every `..`, which is enough for files that the bench has written.
        let name = path.strip_prefix('/').filter(|name| !name.contains('/'))?;
        let body = Bytes::from(std::fs::read(self.root.join(name)).ok()?);
        if body.len() <= self.bytes_max {
            self.entries.write().keep(path, body.clone(), self.bytes_max);
        }
        Some(body)
    }
}

impl Entries {
    fn keep(&mut self, path: &str, body: Bytes, bytes_max: usize) {
        if self.files.contains_key(path) {
            return;
        }
        while self.bytes + body.len() > bytes_max {
            let Some(oldest) = self.order.pop_front() else { break };
            let stays = self.files.get(&oldest).is_some_and(|entry| entry.used.swap(false, Relaxed));
            if stays {
                self.order.push_back(oldest);
            } else if let Some(entry) = self.files.remove(&oldest) {
                self.bytes -= entry.body.len();
            }
        }
        self.bytes += body.len();
        self.order.push_back(path.to_owned());
        self.files.insert(path.to_owned(), Entry { body, used: AtomicBool::new(false) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_lately_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a", "b", "c"] {
            std::fs::write(folder.path().join(name), [name.as_bytes()[0]; 10]).expect("a file");
        }
        let cache = Cache::new(folder.path().to_owned(), 25);
        assert!(cache.find("/a").is_none());
        assert!(cache.read("/a").is_some_and(|body| body == [b'a'; 10][..]));
        assert!(cache.read("/b").is_some() && cache.find("/a").is_some());
        assert!(cache.read("/c").is_some());
        assert!(cache.find("/a").is_some() && cache.find("/b").is_none() && cache.find("/c").is_some());
        assert!(cache.read("/../a").is_none() && cache.read("/none").is_none());
    }
}
