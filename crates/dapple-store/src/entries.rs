//! Enumeration of the records of a table, merged from its partitions in the order of the encoded keys.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dapple_io::time::Instant;

use crate::engine::{Engine, Entry, Partition};
use crate::error::{Error, Refusal};
use crate::map::Map;
use crate::partition::PartitionHandle;
use crate::record::{Record, now_ms};
use crate::store::Store;
use crate::table_info::TableInfo;

pub(crate) struct Entries<E: Engine> {
    store: Store<E>,
    /// The epoch of the map that `pages` are of; `None` before the first read.
    epoch: Option<u64>,
    pages: Vec<Page<E>>,
    /// All before is returned.
    from: Bound<Bytes>,
    to: Bound<Bytes>,
    info: Arc<TableInfo>,
    limit: Duration,
}

/// The entries of one partition that were read and not yet returned.
struct Page<E: Engine> {
    partition: PartitionHandle<E::Partition>,
    entries: VecDeque<Entry>,
    from: Bound<Bytes>,
    ended: bool,
}

/// A page grows with each read, so short ranges stay cheap.
const PAGE_MIN: usize = 16;
const PAGE_MAX: usize = 512;

impl<E: Engine> Entries<E> {
    pub(crate) fn new(
        store: &Store<E>,
        info: &Arc<TableInfo>,
        (from, to): (Bound<Bytes>, Bound<Bytes>),
        limit: Duration,
    ) -> Self {
        Entries { store: store.clone(), epoch: None, pages: Vec::new(), from, to, info: info.clone(), limit }
    }

    /// Starts again after the returned part, in the partitions of the map.
    fn begin(&mut self, map: &Map<E::Partition>) {
        let page = |partition: &PartitionHandle<E::Partition>| Page {
            partition: partition.clone(),
            entries: VecDeque::new(),
            from: self.from.clone(),
            ended: false,
        };
        self.pages = map.group(self.info.kept.durability).iter().map(page).collect();
        self.epoch = Some(map.epoch);
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.info.kept.kind == crate::Kind::Ordered
    }

    /// The next record that has not expired.
    pub(crate) async fn next(&mut self) -> Result<Option<(Vec<u8>, Record)>, Error> {
        loop {
            let next = self.next_kept().await?;
            if next.as_ref().is_none_or(|(_, record)| record.is_live(now_ms())) {
                return Ok(next);
            }
        }
    }

    /// The next record, expired or not.
    pub(crate) async fn next_kept(&mut self) -> Result<Option<(Vec<u8>, Record)>, Error> {
        self.info.check()?;
        let store = self.store.clone();
        let map = store.inner().map(Instant::now() + self.limit).await?;
        if self.epoch != Some(map.epoch) {
            self.begin(&map);
        }
        for page in &mut self.pages {
            page.fill(&self.info, &self.to, Instant::now() + self.limit).await?;
        }
        drop(map);
        let first = self.pages.iter_mut().filter(|page| !page.entries.is_empty());
        let Some(page) = first.min_by(|a, b| a.entries[0].0.cmp(&b.entries[0].0)) else { return Ok(None) };
        let Some((key, bytes)) = page.entries.pop_front() else { return Ok(None) };
        self.from = Bound::Excluded(Bytes::copy_from_slice(&key));
        let record = Record::decode(self.info.id, &key, bytes)
            .ok_or_else(|| Refusal::Engine(page.partition.engine().corrupt("a record does not have its checksum")))?;
        Ok(Some((key, record)))
    }
}

impl<E: Engine> Page<E> {
    async fn fill(&mut self, info: &TableInfo, to: &Bound<Bytes>, deadline: Instant) -> Result<(), Error> {
        if self.ended || !self.entries.is_empty() {
            return Ok(());
        }
        let limit = if matches!(self.from, Bound::Excluded(_)) { PAGE_MAX } else { PAGE_MIN };
        let (table, from, to) = (info.id, self.from.clone(), to.clone());
        let read = self.partition.call(deadline, move |engine| {
            engine.scan(table, (from.as_ref().map(|key| &key[..]), to.as_ref().map(|key| &key[..])), limit)
        });
        let entries = read.await?;
        self.ended = entries.len() < limit;
        if let Some((last, _)) = entries.last() {
            self.from = Bound::Excluded(Bytes::copy_from_slice(last));
        }
        self.entries = entries.into();
        Ok(())
    }
}
