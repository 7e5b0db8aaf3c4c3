//! The cache: the last answers of origins, and what was made of them, in one table.

use dapple::http::relay::Kept;
use dapple::store::{AnyEngine, Bounded, Error, Store, StoreOptions, TableOptions};
use serde::{Deserialize, Serialize};

use crate::fitter::Fitted;

pub(crate) struct Cache(Bounded<String, Row, AnyEngine>);

#[derive(Serialize, Deserialize)]
enum Row {
    /// The last answer for a URL.
    Head(Kept),
    /// By a URL, what a device needs, and the tag of the answer.
    Made(Fitted),
}

impl Cache {
    pub(crate) async fn open(engine: AnyEngine, bytes_max: u64) -> Result<Cache, Error> {
        let store = Store::open(engine, StoreOptions::default()).await?;
        let table = store.table_or_create("answers", TableOptions::default()).await?;
        Ok(Cache(Bounded::new(table, bytes_max).await?))
    }

    /// The answer for a URL, and what was made of it for a device. Trouble with the store is a miss.
    pub(crate) async fn find(&self, url: &str, fit: &str) -> Option<(Kept, Fitted)> {
        let Some(Row::Head(kept)) = self.0.get(&url.to_owned()).await.ok()? else { return None };
        let Some(Row::Made(made)) = self.0.get(&key(url, fit, &kept)).await.ok()? else { return None };
        Some((kept, made))
    }

    /// Keeps an answer, and what was made of it if that is new. Returns whether both are in the table now: long URLs are
    /// not.
    pub(crate) async fn keep(&self, url: &str, fit: &str, kept: &Kept, made: Option<&Fitted>) -> bool {
        // The head last: it is the entry to what it names.
        if let Some(made) = made
            && !self.0.put(&key(url, fit, kept), &Row::Made(made.clone())).await.unwrap_or(false)
        {
            return false;
        }
        self.0.put(&url.to_owned(), &Row::Head(kept.clone())).await.unwrap_or(false)
    }

    /// Forgets a URL, for all devices.
    pub(crate) async fn forget(&self, url: &str) {
        let _ = self.0.remove(&url.to_owned()).await;
    }
}

fn key(url: &str, fit: &str, kept: &Kept) -> String {
    format!("{url}\n{fit}\n{}", kept.tag())
}
