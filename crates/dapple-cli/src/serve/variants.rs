//! The variants of one content with and without a coding, and the choice for a client.
//!
//! A neighbor of a file (`a.js.br` next to `a.js`) is a file like any other, found through the same
//! two caches. A variant compressed here belongs to the page it was made of, and adds to its
//! weight.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use dapple_http::coding::{Accepted, Coding};
use http::HeaderValue;
use tracing::Instrument;

use super::clock::{FRESH_MS, now_ms};
use super::compress;
use super::disk::{FileHandle, file_name};
use super::meta::{Meta, Stamp};
use super::pages::{Content, Joined, Page, shard_of};
use super::site::Site;

/// The known variants of one content.
pub(crate) struct Variants {
    /// A bit for each coding that has a neighbor, and above these the time of the check; `NEVER`
    /// before the first.
    neighbors: AtomicU64,
    /// The fields of replies with each neighbor's content; most content has none.
    labels: OnceLock<Box<[ArcSwapOption<Label>; CODINGS]>>,
    /// Pages compressed here; `None` within if compression does not make them shorter.
    compressed: [OnceLock<Option<Arc<Page>>>; CODINGS],
}

/// The fields of a neighbor's content when it is sent in place of the file.
#[derive(Debug)]
struct Label {
    /// The entity tag of the neighbor's state.
    of: HeaderValue,
    meta: Meta,
}

/// The source of a representation's bytes.
#[derive(Clone)]
pub(crate) enum Source {
    Page(Arc<Page>),
    File(Arc<FileHandle>),
}

/// A representation for a client: bytes, and their fields.
pub(crate) struct Representation {
    pub(crate) source: Source,
    /// Set if the fields differ from those of the source itself.
    label: Option<Arc<Label>>,
}

impl Site {
    /// Chooses among the variants of a content. `None` if the client accepts none of them.
    pub(crate) async fn choose(
        &self,
        key: &[u8],
        plain: Source,
        accepted: &Accepted,
        client: IpAddr,
    ) -> Option<Representation> {
        if accepted.any_coding() {
            if let Some(neighbor) = self.neighbor(key, &plain, accepted, client).await {
                return Some(neighbor);
            }
            if let Source::Page(page) = &plain
                && (page.body.len() >= COMPRESS_LEN_MIN || !accepted.takes_plain())
                && let Some(coding) = accepted.in_order().next()
                && let Some(page) = self.compressed(key, page, coding).await
            {
                return Some(Source::Page(page).into());
            }
        }
        accepted.takes_plain().then(|| plain.into())
    }

    /// The best neighbor that the client accepts.
    async fn neighbor(
        &self,
        key: &[u8],
        plain: &Source,
        accepted: &Accepted,
        client: IpAddr,
    ) -> Option<Representation> {
        let stamp = plain.stamp()?;
        let name = file_name(key);
        let present = match plain.variants().known_neighbors() {
            Some(present) => present,
            None => {
                let mut present = 0;
                for coding in Coding::ALL {
                    let found = self.find_neighbor(&name, &stamp, coding, client).await;
                    present |= u64::from(found.is_some()) << place(coding);
                }
                plain.variants().neighbors.store(now_ms() << CODINGS | present, Ordering::Relaxed);
                present
            }
        };
        for coding in accepted.in_order().filter(|coding| present >> place(*coding) & 1 == 1) {
            if let Some(source) = self.find_neighbor(&name, &stamp, coding, client).await {
                let label = self.label(key, plain, &source, coding);
                return Some(Representation { source, label: Some(label) });
            }
        }
        None
    }

    /// The neighbor of a file, if it exists and is not older than the file.
    async fn find_neighbor(&self, name: &[u8], stamp: &Stamp, coding: Coding, client: IpAddr) -> Option<Source> {
        let neighbor = [name, coding.ending().as_bytes()].concat();
        let source = match self.find(&neighbor, client).await {
            Ok(Content::Page(page)) => Source::Page(page),
            Ok(Content::File(file)) => Source::File(file),
            _ => return None,
        };
        source.stamp().is_some_and(|found| !found.is_older_than(stamp)).then_some(source)
    }

    fn label(&self, key: &[u8], plain: &Source, neighbor: &Source, coding: Coding) -> Arc<Label> {
        let place = &plain.variants().labels.get_or_init(Box::default)[place(coding)];
        let of = &neighbor.meta().etag;
        if let Some(label) = place.load_full().filter(|label| label.of == *of) {
            return label;
        }
        let inner = of.to_str().unwrap_or_default().trim_matches('"');
        let tag = format!("{inner}-{}", coding.name());
        let meta = self.library.labels.coded(key, plain.meta(), coding, &tag, neighbor.meta().modified_s);
        let label = Arc::new(Label { of: of.clone(), meta });
        place.store(Some(label.clone()));
        label
    }

    /// The page compressed here; the first request that asks starts the work. `None` if compression
    /// does not make it shorter, or too many compressions are running.
    async fn compressed(&self, key: &[u8], page: &Arc<Page>, coding: Coding) -> Option<Arc<Page>> {
        if let Some(known) = page.variants.compressed[place(coding)].get() {
            return known.clone();
        }
        // No path has a zero in it.
        let job_key = [key, b"\0", coding.name().as_bytes()].concat();
        let (hash, job_hash) = (self.hash(key), self.hash(&job_key));
        let jobs = &self.shards[shard_of(job_hash)];
        let content = match jobs.with(|shard| shard.join(job_hash, &job_key)).await {
            Joined::Wait(content) => content,
            Joined::Yours => {
                let content = jobs.with(|shard| shard.wait(job_hash, &job_key)).await;
                let job = compress::Job {
                    page: page.clone(),
                    coding,
                    library: self.library.clone(),
                    shard: self.shards[shard_of(hash)].clone(),
                    jobs: jobs.clone(),
                    hash,
                    key: key.into(),
                    job_hash,
                    job_key: job_key.into(),
                };
                // Dropped, it answers the waiting tasks.
                if let Some(place) = compress::CompressPermit::enter(&self.compressing, self.handle.workers()) {
                    self.spawn(job.run(place).in_current_span());
                }
                content
            }
        };
        match content.await {
            Ok(Content::Page(page)) => Some(page),
            _ => None,
        }
    }
}

impl Source {
    pub(crate) fn meta(&self) -> &Meta {
        match self {
            Source::Page(page) => &page.meta,
            Source::File(file) => file.known_meta(),
        }
    }

    /// The number of its bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Source::Page(page) => page.body.len() as u64,
            Source::File(file) => file.state.stamp.len,
        }
    }

    fn variants(&self) -> &Variants {
        match self {
            Source::Page(page) => &page.variants,
            Source::File(file) => &file.variants,
        }
    }

    fn stamp(&self) -> Option<Stamp> {
        match self {
            Source::Page(page) => page.state.map(|state| state.stamp),
            Source::File(file) => Some(file.state.stamp),
        }
    }
}

impl Representation {
    pub(crate) fn meta(&self) -> &Meta {
        self.label.as_ref().map_or_else(|| self.source.meta(), |label| &label.meta)
    }
}

impl From<Source> for Representation {
    fn from(source: Source) -> Representation {
        Representation { source, label: None }
    }
}

impl Variants {
    /// Keeps a compressed page; the first result stays.
    pub(crate) fn keep(&self, coding: Coding, page: Option<Arc<Page>>) -> Option<Arc<Page>> {
        self.compressed[place(coding)].get_or_init(|| page).clone()
    }

    /// The known neighbors, if a check was made recently or is about to be; `None`: the caller has
    /// to check.
    fn known_neighbors(&self) -> Option<u64> {
        let seen = self.neighbors.load(Ordering::Relaxed);
        let (looked_ms, present) = (seen >> CODINGS, seen & PRESENT);
        let now_ms = now_ms();
        if seen == NEVER {
            return None;
        }
        let renewed = now_ms << CODINGS | present;
        // One request checks again; until then others use the last result.
        let is_mine = now_ms.saturating_sub(looked_ms) >= FRESH_MS
            && self.neighbors.compare_exchange(seen, renewed, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        (!is_mine).then_some(present)
    }
}

impl Default for Variants {
    fn default() -> Variants {
        Variants { neighbors: AtomicU64::new(NEVER), labels: Default::default(), compressed: Default::default() }
    }
}

impl fmt::Debug for Variants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variants").field("neighbors", &self.neighbors).finish_non_exhaustive()
    }
}

fn place(coding: Coding) -> usize {
    coding as usize
}

const CODINGS: usize = Coding::ALL.len();
const PRESENT: u64 = (1 << CODINGS) - 1;
const NEVER: u64 = u64::MAX;

/// Shorter pages fit into one packet anyway.
const COMPRESS_LEN_MIN: usize = 1_024;
