//! sqlx with SQLite: a pool, transactions, a database in memory and one in a file.

use std::str::FromStr;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};

use crate::whole_runtime::{assert_both, run};
use crate::{LIMIT, run as without_tokio};

/// Twenty tasks each move some cents from one account to the other; half of them do not commit.
async fn transfer(pool: &SqlitePool) {
    let create = "CREATE TABLE accounts (name TEXT PRIMARY KEY, cents INTEGER NOT NULL)";
    sqlx::query(create).execute(pool).await.unwrap();
    for (name, cents) in [("ada", 1_000), ("bob", 0)] {
        let insert = sqlx::query("INSERT INTO accounts VALUES ($1, $2)").bind(name).bind(cents);
        assert_eq!(insert.execute(pool).await.unwrap().rows_affected(), 1);
    }
    let tasks: Vec<_> = (1..=20)
        .map(|cents| {
            let pool = pool.clone();
            dapple::spawn(async move {
                let mut transaction = pool.begin().await.unwrap();
                for (name, change) in [("ada", -cents), ("bob", cents)] {
                    let update = sqlx::query("UPDATE accounts SET cents = cents + $1 WHERE name = $2");
                    update.bind(change).bind(name).execute(&mut *transaction).await.unwrap();
                    assert_both();
                }
                match cents % 2 {
                    0 => transaction.commit().await.unwrap(),
                    // sqlx rolls a transaction back that is dropped.
                    _ => drop(transaction),
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// All accounts, by their names.
async fn accounts(pool: &SqlitePool) -> Vec<(String, i64)> {
    let select = sqlx::query_as("SELECT name, cents FROM accounts ORDER BY name");
    let accounts = select.fetch_all(pool).await.unwrap();
    assert_both();
    accounts
}

/// 2 + 4 + … + 20 cents have been moved.
fn moved() -> Vec<(String, i64)> {
    vec![("ada".to_owned(), 890), ("bob".to_owned(), 110)]
}

#[test]
fn sqlx_with_sqlite_in_memory() {
    run(|| async {
        // Each connection in memory has a database of its own: all tasks wait for one.
        let options = SqliteConnectOptions::from_str("sqlite::memory:").unwrap();
        let pool = SqlitePoolOptions::new().max_connections(1).acquire_timeout(LIMIT).connect_with(options);
        let pool = pool.await.unwrap();
        transfer(&pool).await;
        assert_eq!(accounts(&pool).await, moved());
        pool.close().await;
    });
}

#[test]
fn sqlx_with_sqlite_in_a_file() {
    run(|| async {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteConnectOptions::new().filename(folder.path().join("accounts.db")).create_if_missing(true);
        let options = options.journal_mode(SqliteJournalMode::Wal).busy_timeout(LIMIT);
        for is_new in [true, false] {
            let pool = SqlitePoolOptions::new().max_connections(4).acquire_timeout(LIMIT);
            let pool = pool.connect_with(options.clone()).await.unwrap();
            if is_new {
                transfer(&pool).await;
            }
            assert_eq!(accounts(&pool).await, moved());
            pool.close().await;
        }
    });
}

#[test]
fn without_tokio_it_panics_and_says_what_to_do() {
    without_tokio(1, async {
        let connecting = dapple::spawn(async { SqlitePool::connect("sqlite::memory:").await.map(drop) });
        let error = connecting.await.unwrap_err();
        assert!(error.to_string().contains("`dapple::builder().tokio()`"), "{error}");
    });
}
