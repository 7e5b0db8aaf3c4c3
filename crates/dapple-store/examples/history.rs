//! Clients of one store that write down what they call and what they get, for `cargo xtask store-torture`.
//!
//! `history URL EPOCH OPERATIONS` opens the store, lets ten clients do so many operations on eight keys, and writes two lines of JSON
//! for each to its standard output: one before the call, one after the answer. The process may be killed at any time and started
//! again with the next epoch.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use dapple_sched::Color;
use dapple_store::{AnyEngine, Error, Expect, Refusal, Store, StoreOptions, StoreUrl, Table, TableOptions, Version};

const CLIENTS: u64 = 10;
const KEYS: u64 = 8;

type Registers = Table<u64, u64, AnyEngine>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, epoch, operations] = &args[..] else { return Err("history URL EPOCH OPERATIONS".into()) };
    let (url, epoch, operations) = (url.parse::<StoreUrl>()?, epoch.parse()?, operations.parse()?);
    let runtime = dapple_io::runtime_builder().workers(2).build()?;
    Ok(runtime.block_on(run(url, epoch, operations))?)
}

async fn run(url: StoreUrl, epoch: u64, operations: u64) -> Result<(), Error> {
    let mut options = StoreOptions::default();
    options.partitions = 2;
    // In etcd, a process that was killed has the store until its lease is over.
    options.in_use_limit = Duration::from_secs(60);
    let store = Store::open(url.engine(), options).await?;
    let table: Registers = store.table_or_create("registers", TableOptions::default()).await?;
    let numbers = Arc::new(AtomicU64::new(epoch << 32));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (store, table, numbers) = (store.clone(), table.clone(), numbers.clone());
            let id = epoch * CLIENTS + client;
            // Shorter than some commits, so that some outcomes are unknown.
            let hasty = table.clone().with_limit(Duration::from_millis(5));
            let last = [(0, Version(0)); KEYS as usize];
            let client = Client { store, table, hasty, numbers, id, random: id * 2 + 1, last };
            Color::new().spawn(client.run(operations / CLIENTS))
        })
        .collect();
    for client in clients {
        if let Err(error) = client.await {
            eprintln!("a client failed: {error}");
            std::process::exit(1);
        }
    }
    drop(table);
    store.close().await;
    Ok(())
}

struct Client {
    store: Store<AnyEngine>,
    table: Registers,
    hasty: Registers,
    numbers: Arc<AtomicU64>,
    id: u64,
    random: u64,
    /// The value and the version that it last saw of each key; 0 for none.
    last: [(u64, Version); KEYS as usize],
}

/// The entry of the history for a finished operation.
struct End {
    outcome: &'static str,
    /// The value before, or that was read; 0 for none.
    found: u64,
}

impl Client {
    async fn run(mut self, operations: u64) {
        for _ in 0..operations {
            self.operate().await;
        }
    }

    async fn operate(&mut self) {
        // Every number is used once in all epochs: for an operation and for the value that it writes.
        let number = self.numbers.fetch_add(1, SeqCst) + 1;
        let key = self.random() % KEYS;
        let (seen, version) = self.last[key as usize];
        let kind = self.random() % 10;
        let (op, expect) = match kind {
            0..4 => ("get", 0),
            4..6 => ("put", 0),
            6 => ("remove", 0),
            _ => ("cas", seen),
        };
        let client = self.id;
        let call = format!(r#""client":{client},"op":"{op}","key":{key},"expect":{expect},"value":{number}"#);
        write_line(&format!(r#"{{"call":{number},{call}}}"#));
        let table = if self.random().is_multiple_of(20) { self.hasty.clone() } else { self.table.clone() };
        let end = match op {
            "get" => self.get(&table, key).await,
            "put" => {
                let written = table.put(&key, &number).await;
                self.ended(key, written.map(|written| (written.previous.map(|old| old.value), number, written.version)))
            }
            "remove" => {
                let removed = table.remove(&key).await;
                self.ended(key, removed.map(|old| (old.map(|old| old.value), 0, Version(0))))
            }
            _ => {
                let expect = match kind {
                    _ if seen == 0 => Expect::Absent,
                    7 => Expect::Value(seen),
                    _ => Expect::Version(version),
                };
                let written = table.cas(&key, expect, &number).await;
                let end = written.map(|written| (written.previous.map(|old| old.value), number, written.version));
                self.ended(key, end)
            }
        };
        if let Some(End { outcome, found }) = end {
            write_line(&format!(r#"{{"end":{number},"outcome":"{outcome}","found":{found}}}"#));
        }
        if self.random().is_multiple_of(200) {
            self.several().await;
        }
    }

    async fn get(&mut self, table: &Registers, key: u64) -> Option<End> {
        let found = table.get_versioned(&key, Default::default()).await;
        self.ended(
            key,
            found.map(|found| match found {
                Some(found) => (Some(found.value), found.value, found.version),
                None => (None, 0, Version(0)),
            }),
        )
    }

    /// The end of an operation that found one value and left another.
    fn ended(&mut self, key: u64, result: Result<(Option<u64>, u64, Version), Error>) -> Option<End> {
        match result {
            Ok((found, value, version)) => {
                self.last[key as usize] = (value, version);
                Some(End { outcome: "ok", found: found.unwrap_or(0) })
            }
            Err(Error::NotApplied(Refusal::Conflict { .. })) => {
                self.last[key as usize] = (0, Version(0));
                Some(End { outcome: "conflict", found: 0 })
            }
            Err(Error::Unavailable(_) | Error::NotApplied(_)) => Some(End { outcome: "not", found: 0 }),
            Err(Error::Unknown { .. } | _) => Some(End { outcome: "unknown", found: 0 }),
        }
    }

    /// Reads two keys in a transaction: it must not disturb the others.
    async fn several(&self) {
        let table = &self.table;
        let _ = self
            .store
            .transaction(|transaction| async move {
                transaction.get(table, &0).await?;
                transaction.get(table, &1).await
            })
            .await;
    }

    /// xorshift64
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 20
    }
}

/// One system call for one line, so that a kill leaves whole lines.
fn write_line(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}
