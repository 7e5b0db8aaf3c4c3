//! The host of tables.
//!
//! | table | key | value |
//! |---|---|---|
//! | `files` | a path | [`File`] |
//! | `rows` | a key of a handler | its text |

use std::time::SystemTime;

use dapple::store::{
    AnyEngine, Batch, Error, Expect, OrderedTable, Read, Refusal, Store, StoreOptions, Table, TableOptions, Value,
    Version,
};

use crate::message::{Answer, Ask, Changes, Expected, File, Stamp};

/// The tables of one host. Clones are the same ones.
#[derive(Clone)]
pub(crate) struct Tables {
    store: Store<AnyEngine>,
    files: Table<String, File, AnyEngine>,
    rows: OrderedTable<String, String, AnyEngine>,
}

impl Tables {
    /// Opens the tables, or creates them, and returns the number of files, too.
    pub(crate) async fn open(engine: AnyEngine) -> Result<(Tables, u64), Error> {
        let store = Store::open(engine, StoreOptions::default()).await?;
        let files: Table<String, File, AnyEngine> = store.table_or_create("files", TableOptions::default()).await?;
        let rows = store.ordered_table_or_create("rows", TableOptions::default()).await?;
        let count = files.count().await?;
        Ok((Tables { store, files, rows }, count))
    }

    /// Answers one request. A store that is too busy is a refusal, which front ends know as such.
    pub(crate) async fn answer(self, ask: Ask) -> Result<Answer, Error> {
        let answer = match ask {
            Ask::File { path, body_len_max } => self.file(&path, body_len_max).await,
            Ask::Change { path, expected, file } => self.change(&path, expected, file).await,
            Ask::Rows { first, end } => self.rows(first, end).await,
            Ask::ChangeRows { check, rows } => self.change_rows(check, rows).await,
        };
        match answer {
            Err(Error::NotApplied(Refusal::Conflict { .. })) => Ok(Answer::Conflict),
            Err(Error::NotApplied(unfit @ Refusal::TooLong { .. })) => Ok(Answer::Unfit(unfit.to_string())),
            Err(Error::Unknown { .. }) => Ok(Answer::Unknown),
            answer => answer,
        }
    }

    async fn file(&self, path: &String, body_len_max: usize) -> Result<Answer, Error> {
        let found = self.files.get_versioned(path, Read::Linearizable).await?;
        Ok(Answer::File(found.map(|mut found| {
            let len = found.value.body.len();
            if len > body_len_max {
                found.value.body.clear();
            }
            (Stamp { version: found.version.0, modified_s: found.value.modified_s, len }, found.value)
        })))
    }

    async fn change(&self, path: &String, expected: Expected, file: Option<File>) -> Result<Answer, Error> {
        let mut batch = self.store.batch();
        check(&mut batch, &self.files, path, expected)?;
        let len = file.as_ref().map_or(0, |file| file.body.len());
        let modified_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
        match file {
            Some(file) => batch.put(&self.files, path, &File { modified_s, ..file })?,
            None => batch.remove(&self.files, path)?,
        }
        let version = batch.commit().await?.last().map_or(0, |version| version.0);
        Ok(Answer::Changed(Stamp { version, modified_s, len }))
    }

    async fn rows(&self, first: String, end: String) -> Result<Answer, Error> {
        let mut range = self.rows.range(first..end)?;
        let mut rows = Vec::new();
        while rows.len() < ROWS_MAX
            && let Some((key, found)) = range.next().await?
        {
            rows.push((key, found.version.0, found.value));
        }
        Ok(Answer::Rows(rows))
    }

    async fn change_rows(&self, (key, expected): (String, Expected), rows: Changes) -> Result<Answer, Error> {
        let mut batch = self.store.batch();
        check(&mut batch, &self.rows, &key, expected)?;
        for (key, value) in rows {
            match value {
                Some(value) => batch.put(&self.rows, &key, &value)?,
                None => batch.remove(&self.rows, &key)?,
            }
        }
        batch.commit().await.map(|_| Answer::Changed(Stamp::default()))
    }
}

fn check<V: Value>(
    batch: &mut Batch<AnyEngine>,
    table: &Table<String, V, AnyEngine>,
    key: &String,
    expected: Expected,
) -> Result<(), Error> {
    match expected {
        Expected::Any => Ok(()),
        Expected::Absent => batch.check(table, key, Expect::Absent),
        Expected::Version(version) => batch.check(table, key, Expect::Version(Version(version))),
    }
}

/// The rows of one answer.
const ROWS_MAX: usize = 200;
