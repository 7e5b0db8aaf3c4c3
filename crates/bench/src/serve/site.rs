//! The files that are served, and the check that they come back byte for byte.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// A directory of small files with known contents.
pub(crate) struct Site {
    dir: TempDir,
    files: Arc<Vec<(String, Vec<u8>)>>,
}

const FILES: usize = 100;
const FILE_SIZE: usize = 4_096;

impl Site {
    /// Writes the files of the workload `small`: 100 of 4 KB, each with contents of its own.
    pub(crate) fn small() -> Result<Site> {
        let dir = tempfile::Builder::new()
            .prefix("dapple-bench-")
            .tempdir()
            .context("cannot make a directory for the files")?;
        let mut files = Vec::new();
        for index in 0..FILES {
            let (name, body) = (format!("file-{index:03}.html"), contents(index as u64));
            std::fs::create_dir_all(dir.path().join("www"))?;
            std::fs::write(dir.path().join("www").join(&name), &body)?;
            files.push((format!("/{name}"), body));
        }
        Ok(Site { dir, files: Arc::new(files) })
    }

    /// The directory to serve.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("www")
    }

    /// A directory beside it for what a server wants to write; goes away with the site.
    pub(crate) fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// The paths to ask for.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(path, _)| path.as_str())
    }

    /// Fetches every file once and compares it.
    pub(crate) fn check_all(&self, base: &str) -> Result<()> {
        let agent = agent();
        self.files.iter().try_for_each(|(path, body)| check_one(&agent, base, path, body))
    }

    /// Fetches and compares files all the time until told to stop.
    pub(crate) fn check_on(&self, base: &str) -> Checker {
        let stop = Arc::new(AtomicBool::new(false));
        let (files, base, asked) = (Arc::clone(&self.files), base.to_owned(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let agent = agent();
            let mut compared = 0;
            // Step by a prime, so that the files are asked for in another order than the load asks.
            while !asked.load(Relaxed) {
                let (path, body) = &files[compared * 37 % files.len()];
                check_one(&agent, &base, path, body)?;
                compared += 1;
                // 20 requests a second are nothing beside the load, and enough to meet a body that is wrong now and then.
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(compared)
        });
        Checker { stop, thread }
    }
}

/// Compares files in a thread beside the load.
pub(crate) struct Checker {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<usize>>,
}

impl Checker {
    /// Stops; yields how many bodies were compared, or what was wrong.
    pub(crate) fn finish(self) -> Result<usize> {
        self.stop.store(true, Relaxed);
        match self.thread.join() {
            Ok(outcome) => outcome,
            Err(_) => anyhow::bail!("the checker panicked"),
        }
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().proxy(None).timeout_global(Some(Duration::from_secs(10))).build();
    config.into()
}

fn check_one(agent: &ureq::Agent, base: &str, path: &str, body: &[u8]) -> Result<()> {
    let url = format!("{base}{path}");
    let mut response = agent.get(&url).call().with_context(|| format!("cannot fetch {url}"))?;
    ensure!(response.status() == 200, "{url} answered {}", response.status());
    let got = response.body_mut().read_to_vec().with_context(|| format!("cannot read the body of {url}"))?;
    ensure!(got == body, "{url}: the body is wrong ({} bytes instead of {}, or other ones)", got.len(), body.len());
    Ok(())
}

/// Printable bytes that differ from file to file and from place to place.
fn contents(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'a' + ((state >> 33) % 26) as u8
    };
    (0..FILE_SIZE).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::hyper::Files;
    use super::*;

    #[test]
    fn right_bodies_pass_and_a_wrong_or_missing_one_fails() {
        let site = Site::small().expect("a temporary directory");
        let files = Files::read(&site.root()).expect("the files just written");
        let port = super::super::hyper::serve_in_background(files).expect("a free port");
        let base = format!("http://127.0.0.1:{port}");
        site.check_all(&base).expect("all bodies right");
        assert!(site.check_on(&base).finish().is_ok());
        let agent = agent();
        assert!(
            check_one(&agent, &base, "/file-000.html", &contents(1))
                .is_err_and(|error| error.to_string().contains("wrong"))
        );
        assert!(check_one(&agent, &base, "/missing.html", &[]).is_err());
    }

    #[test]
    fn contents_differ() {
        assert_ne!(contents(0), contents(1));
        assert_eq!(contents(0).len(), FILE_SIZE);
    }
}
