//! Accounts that survive the process: each run moves money between them, and the next run finds
//! them.
//!
//! ```text
//! cargo run --example accounts [DIRECTORY]
//! ```

use dapple::store::{Error, Redb, Store, StoreOptions, Table, TableOptions};

const ACCOUNTS: [&str; 3] = ["ann", "ben", "cleo"];

#[dapple::main]
async fn main() -> Result<(), Error> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "accounts-data".to_owned());
    let store = Store::open(Redb::new(&directory), StoreOptions::default()).await?;
    let accounts: Table<String, u64, _> = store.table_or_create("accounts", TableOptions::default()).await?;
    for name in ACCOUNTS {
        accounts.modify(&name.to_owned(), open_account).await?;
    }
    for (from, to) in [("ann", "ben"), ("ben", "cleo"), ("cleo", "ann"), ("ann", "cleo")] {
        let (accounts, from, to) = (&accounts, &from.to_owned(), &to.to_owned());
        // Both accounts change, or none, even if the process is killed in between.
        let transfer = store.transaction(|tx| async move {
            let (rich, poor) = (tx.get(accounts, from).await?.unwrap_or(0), tx.get(accounts, to).await?.unwrap_or(0));
            let Some(rest) = rich.checked_sub(30) else { return Ok(false) };
            tx.put(accounts, from, &rest)?;
            tx.put(accounts, to, &(poor + 30))?;
            Ok(true)
        });
        println!("{from} gives 30 to {to}: {}", if transfer.await? { "done" } else { "has too little" });
    }
    let mut all = accounts.iter();
    while let Some((name, balance)) = all.next().await? {
        println!("{name} has {}", balance.value);
    }
    Ok(())
}

/// A new account starts with 100.
fn open_account(entry: Option<dapple::store::Entry<u64>>) -> (dapple::store::Change<u64>, ()) {
    match entry {
        Some(_) => (dapple::store::Change::Keep, ()),
        None => (dapple::store::Change::Put { value: 100, expires: None }, ()),
    }
}
