//! The keys in the store.
//!
//! | table | key | value |
//! |---|---|---|
//! | `keys` | a fingerprint | the key, as OpenPGP's packets |
//! | `terms` | a term, and a fingerprint | nothing |
//!
//! A key and its terms change in one transaction, so that each search finds what a fetch then returns.

use std::collections::BTreeSet;

use dapple::blocking::spawn_blocking;
use dapple::store::{AnyEngine, Error, OrderedTable, Refusal, Store, StoreOptions, Table, TableOptions};

use crate::keys::{self, Key, Unusable};

/// All keys of this server. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Registry {
    store: Store<AnyEngine>,
    keys: Table<String, Vec<u8>, AnyEngine>,
    terms: OrderedTable<(String, String), (), AnyEngine>,
}

/// The reason why a request about keys fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error(transparent)]
    Unusable(#[from] Unusable),
    #[error("a key is read by its ID behind 0x, or by words of its user IDs, such as an address")]
    NoTerm,
    #[error("too many keys match; add a word, or search for a whole address")]
    TooCommon,
    #[error(transparent)]
    Store(#[from] Error),
}

/// The result of a search.
pub(crate) struct Found {
    /// The first keys, by fingerprint.
    pub(crate) keys: Vec<Key>,
    /// The number of all that match.
    pub(crate) count: usize,
}

impl Registry {
    pub(crate) async fn open(engine: AnyEngine) -> Result<Registry, Error> {
        let store = Store::open(engine, StoreOptions::default()).await?;
        let keys = store.table_or_create("keys", TableOptions::default()).await?;
        let terms = store.ordered_table_or_create("terms", TableOptions::default()).await?;
        Ok(Registry { store, keys, terms })
    }

    /// The number of keys.
    pub(crate) async fn count(&self) -> Result<u64, Error> {
        self.keys.count().await
    }

    /// Adds armored keys, or what is new in them, and returns their fingerprints.
    pub(crate) async fn add(&self, text: String) -> Result<Vec<String>, Problem> {
        let read = spawn_blocking(move || keys::read(&text)).await;
        let read = read.map_err(|error| Unusable::Syntax(error.to_string()))??;
        let mut fingerprints = Vec::new();
        for key in read {
            fingerprints.push(key.fingerprint());
            self.store.transaction(|tx| self.add_one(tx, key.clone())).await??;
        }
        Ok(fingerprints)
    }

    async fn add_one(
        &self,
        tx: dapple::store::Transaction<AnyEngine>,
        key: Key,
    ) -> Result<Result<(), Unusable>, Error> {
        let fingerprint = key.fingerprint();
        let known = tx.get(&self.keys, &fingerprint).await?;
        let key = match known.as_deref().map(stored).transpose()? {
            Some(known) => match known.merged(key) {
                Ok(merged) => merged,
                Err(unusable) => return Ok(Err(unusable)),
            },
            None => key,
        };
        let bytes = key.bytes();
        if known.as_ref() == Some(&bytes) {
            return Ok(Ok(()));
        }
        tx.put(&self.keys, &fingerprint, &bytes)?;
        for term in key.terms() {
            tx.put(&self.terms, &(term, fingerprint.clone()), &())?;
        }
        Ok(Ok(()))
    }

    /// Finds keys by an ID such as `0x1234ABCD`, or by words that must all be in the user IDs of a key.
    pub(crate) async fn find(&self, search: &str) -> Result<Found, Problem> {
        let terms: BTreeSet<String> = match search.strip_prefix("0x").or_else(|| search.strip_prefix("0X")) {
            Some(id) if id.len() > FINGERPRINT_LEN_MAX => BTreeSet::new(),
            Some(id) => [format!("0x{}", id.to_ascii_uppercase())].into(),
            None => keys::words(search).take(TERMS_MAX).collect(),
        };
        if terms.is_empty() {
            return Err(Problem::NoTerm);
        }
        let (mut keys, mut count) = (Vec::new(), 0);
        for fingerprint in self.having_one(&terms).await?.ok_or(Problem::TooCommon)? {
            if !self.has_all(&fingerprint, &terms).await? {
                continue;
            }
            count += 1;
            if keys.len() == FOUND_MAX {
                continue;
            }
            if let Some(bytes) = self.keys.get(&fingerprint).await? {
                keys.push(stored(&bytes)?);
            }
        }
        Ok(Found { keys, count })
    }

    /// The keys with the first of the terms that not too many keys have; `None` if there is no such term.
    async fn having_one(&self, terms: &BTreeSet<String>) -> Result<Option<BTreeSet<String>>, Error> {
        for term in terms {
            if let Some(having) = self.having(term).await? {
                return Ok(Some(having));
            }
        }
        Ok(None)
    }

    async fn has_all(&self, fingerprint: &str, terms: &BTreeSet<String>) -> Result<bool, Error> {
        for term in terms {
            if !self.terms.contains(&(term.clone(), fingerprint.to_owned())).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The fingerprints of the keys with this term; `None` if there are more than [`HAVING_MAX`].
    async fn having(&self, term: &str) -> Result<Option<BTreeSet<String>>, Error> {
        let (first, last) = ((term.to_owned(), String::new()), (term.to_owned(), "~".to_owned()));
        let mut range = self.terms.range(first..last)?;
        let mut having = BTreeSet::new();
        while let Some(((_, fingerprint), _)) = range.next().await? {
            if having.len() == HAVING_MAX {
                return Ok(None);
            }
            having.insert(fingerprint);
        }
        Ok(Some(having))
    }
}

/// A key from the store.
fn stored(bytes: &[u8]) -> Result<Key, Error> {
    Key::from_bytes(bytes).map_err(|error| Refusal::Codec(format!("a stored key cannot be read: {error}")).into())
}

/// The keys that one search returns.
const FOUND_MAX: usize = 50;
/// The keys that a search reads for one term.
const HAVING_MAX: usize = 500;
/// Letters of a fingerprint of version 6.
const FINGERPRINT_LEN_MAX: usize = 64;
const TERMS_MAX: usize = 10;
