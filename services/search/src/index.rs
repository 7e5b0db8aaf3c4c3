//! One partition: its documents, and for each word the documents that have it.
//!
//! | table | key | value |
//! |---|---|---|
//! | `documents-N` | the number of a document | [`Document`] |
//! | `words-N` | a word | its documents, by number, each with a weight |
//! | `current` | `""` | the number `N` of the present tables, and the number of documents |
//!
//! A load writes new tables and then the number, so that a load which ends early changes nothing.

use std::collections::BTreeMap;

use dapple::store::{AnyEngine, Error, OrderedTable, Store, Table, TableOptions};
use futures_util::stream;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::words::{Document, snippet, words};

/// A question to a partition: documents that have all of these words.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Query {
    pub(crate) words: Vec<String>,
}

/// The answer of one partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Share {
    /// The best documents, the best first.
    pub(crate) hits: Vec<Hit>,
    /// The number of documents with all words.
    pub(crate) found: u64,
    /// The number of all documents.
    pub(crate) documents: u64,
}

/// A document that has the words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hit {
    pub(crate) title: String,
    pub(crate) place: String,
    pub(crate) snippet: String,
    pub(crate) score: f32,
}

/// The documents with a word, by number, each with the part of its score that does not depend on other documents.
type Postings = Vec<(u32, f32)>;

/// The present tables.
#[derive(Clone)]
pub(crate) struct Index {
    documents: OrderedTable<u32, Document, AnyEngine>,
    words: OrderedTable<String, Postings, AnyEngine>,
    count: u32,
}

impl Index {
    /// Opens the partition; `None` if nothing was loaded.
    pub(crate) async fn open(store: &Store<AnyEngine>) -> Result<Option<Index>, Error> {
        let Some((number, count)) = current(store).await?.get(&String::new()).await? else { return Ok(None) };
        let documents = store.ordered_table(&format!("documents-{number}")).await?;
        let words = store.ordered_table(&format!("words-{number}")).await?;
        Ok(Some(Index { documents, words, count }))
    }

    /// The number of documents.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// The best documents that have all words.
    pub(crate) async fn search(&self, query: Query) -> Result<Share, Error> {
        let found: Option<Vec<Postings>> = self.words.get_many(&query.words).await?.into_iter().collect();
        // A word that no document has.
        let mut scored = found.map_or(Vec::new(), |found| self.scores(found));
        let found = scored.len() as u64;
        if scored.len() > HITS_MAX {
            scored.select_nth_unstable_by(HITS_MAX, |a, b| b.1.total_cmp(&a.1));
            scored.truncate(HITS_MAX);
        }
        scored.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let documents = self.documents.get_many(scored.iter().map(|(number, _)| number)).await?;
        let hits = documents.into_iter().zip(scored).filter_map(|(document, (_, score))| {
            let Document { title, place, text } = document?;
            Some(Hit { title, place, snippet: snippet(&text, &query.words), score })
        });
        Ok(Share { hits: hits.collect(), found, documents: u64::from(self.count) })
    }

    /// The documents that are in all of the lists, with their scores.
    fn scores(&self, mut lists: Vec<Postings>) -> Vec<(u32, f32)> {
        lists.sort_by_key(Vec::len);
        // A word that few documents have says more.
        let rarity = |list: &Postings| (1.0 + f64::from(self.count) / list.len().max(1) as f64).ln() as f32;
        let mut lists = lists.into_iter().map(|list| (rarity(&list), list));
        let Some((rare, first)) = lists.next() else { return Vec::new() };
        let mut scored: Vec<(u32, f32)> = first.into_iter().map(|(number, weight)| (number, rare * weight)).collect();
        for (rare, list) in lists {
            scored.retain_mut(|(number, score)| {
                let at = list.binary_search_by_key(number, |(number, _)| *number);
                at.inspect(|at| *score += rare * list[*at].1).is_ok()
            });
        }
        scored
    }
}

/// Replaces the documents of a partition.
pub(crate) async fn load(store: &Store<AnyEngine>, documents: Vec<Document>) -> Result<u32, Error> {
    let current = current(store).await?;
    let before = current.get(&String::new()).await?.map(|(number, _)| number);
    let number = before.unwrap_or(0) + 1;
    // A load that ended early may have left such tables.
    destroy(store, number).await;
    let count = documents.len() as u32;
    fill(store, &format!("words-{number}"), invert(&documents)).await?;
    let numbered = (0_u32..).zip(documents).collect();
    fill(store, &format!("documents-{number}"), numbered).await?;
    current.put(&String::new(), &(number, count)).await?;
    if let Some(before) = before {
        destroy(store, before).await;
    }
    Ok(count)
}

/// The documents of each word, weighed as BM25 does: a word counts for more in a short document and in a title, and its
/// tenth use for little.
fn invert(documents: &[Document]) -> BTreeMap<String, Postings> {
    let lens: Vec<f32> = documents.iter().map(|document| words(&document.text).count() as f32).collect();
    let average = lens.iter().sum::<f32>() / documents.len().max(1) as f32;
    let mut index: BTreeMap<String, Postings> = BTreeMap::new();
    for (number, (document, len)) in (0..).zip(documents.iter().zip(lens)) {
        let mut uses: BTreeMap<String, f32> = BTreeMap::new();
        words(&document.text).for_each(|word| *uses.entry(word).or_default() += 1.0);
        words(&document.title).for_each(|word| *uses.entry(word).or_default() += TITLE);
        for (word, uses) in uses {
            let weight = uses * 2.2 / (uses + 1.2 * (0.25 + 0.75 * len / average.max(1.0)));
            index.entry(word).or_default().push((number, weight));
        }
    }
    index
}

async fn current(store: &Store<AnyEngine>) -> Result<Table<String, (u64, u32), AnyEngine>, Error> {
    store.table_or_create("current", TableOptions::default()).await
}

/// Makes a table with these entries.
async fn fill<K, V>(store: &Store<AnyEngine>, name: &str, entries: BTreeMap<K, V>) -> Result<(), Error>
where
    K: Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    let table: OrderedTable<K, V, AnyEngine> = store.create_ordered(name, TableOptions::default()).await?;
    table.bulk_load(stream::iter(entries), |_| {}).await.map(drop)
}

/// Removes the tables of a load as far as they are there.
async fn destroy(store: &Store<AnyEngine>, number: u64) {
    for kind in ["documents", "words"] {
        let _ = store.destroy(&format!("{kind}-{number}")).await;
    }
}

/// The hits of one partition.
pub(crate) const HITS_MAX: usize = 10;
/// The uses in the text that one in the title counts for.
const TITLE: f32 = 5.0;
