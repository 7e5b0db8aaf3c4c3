//! Documents in the store, and changes under a condition.

use dapple::store::Versioned;
use dapple::store::{
    AnyEngine, Error, Expect, OrderedTable, Read, Refusal, Store, StoreOptions, TableOptions, Version,
};
use serde_json::Value;

use crate::document::Kind;

/// A document and its version.
pub(crate) type Document = Versioned<Value>;

/// All documents. Clones are the same ones.
#[derive(Clone)]
pub(crate) struct Registry {
    users: OrderedTable<String, String, AnyEngine>,
    devices: OrderedTable<String, String, AnyEngine>,
}

/// The reason why a request is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("there is no such document")]
    Missing,
    #[error("the document is another one by now; read it again")]
    Changed {
        /// The version that is there, if any is.
        current: Option<Version>,
    },
    #[error("{0}")]
    Invalid(String),
    #[error(
        "send If-Match with the ETag that was read, or If-None-Match: * for a new document, so that no change is lost"
    )]
    NoCondition,
    #[error("the token is missing or wrong; send Authorization: Bearer TOKEN")]
    NoToken,
    #[error(transparent)]
    Store(#[from] Error),
}

impl Registry {
    pub(crate) async fn open(engine: AnyEngine) -> Result<Registry, Error> {
        let store = Store::open(engine, StoreOptions::default()).await?;
        let users = store.ordered_table_or_create("users", TableOptions::default()).await?;
        let devices = store.ordered_table_or_create("devices", TableOptions::default()).await?;
        Ok(Registry { users, devices })
    }

    fn table(&self, kind: Kind) -> &OrderedTable<String, String, AnyEngine> {
        match kind {
            Kind::Users => &self.users,
            Kind::Devices => &self.devices,
        }
    }

    pub(crate) async fn read(&self, kind: Kind, name: &str) -> Result<Option<Document>, Problem> {
        let found = self.table(kind).get_versioned(&name.to_owned(), Read::Linearizable).await?;
        found.map(|found| Ok(Versioned { value: decoded(&found.value)?, version: found.version })).transpose()
    }

    /// Names after `after`, in order, at most [`NAMES_MAX`].
    pub(crate) async fn names(&self, kind: Kind, after: &str) -> Result<Vec<String>, Problem> {
        let mut range = self.table(kind).range(after.to_owned()..)?;
        let mut names = Vec::new();
        while let Some((name, _)) = range.next().await?
            && names.len() < NAMES_MAX
        {
            if name != after {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Replaces a document by the one that `decide` makes of it, or removes it, and returns the new version.
    ///
    /// `decide` runs again, on the new document, if another change came between: so the condition that it checks holds at
    /// the moment of the change.
    pub(crate) async fn change(
        &self,
        kind: Kind,
        name: &str,
        decide: impl Fn(Option<&Document>) -> Result<Option<Value>, Problem>,
    ) -> Result<Option<Version>, Problem> {
        let (table, name) = (self.table(kind), name.to_owned());
        loop {
            let found = self.read(kind, &name).await?;
            let expect = found.as_ref().map_or(Expect::Absent, |found| Expect::Version(found.version));
            let result = match decide(found.as_ref())? {
                Some(value) => table.cas(&name, expect, &value.to_string()).await.map(|written| Some(written.version)),
                None => table.remove_if(&name, expect).await.map(|_| None),
            };
            match result {
                // Each such turn is another client's success.
                Err(Error::NotApplied(Refusal::Conflict { .. })) => {}
                result => return Ok(result?),
            }
        }
    }
}

fn decoded(text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|error| Refusal::Codec(format!("a stored document is damaged: {error}")).into())
}

/// The names in one answer.
pub(crate) const NAMES_MAX: usize = 1000;
