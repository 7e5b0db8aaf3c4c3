//! sqlx with a real PostgreSQL, and redis with a real redis-server and with `dapple store serve`, which the tests start.
//! `cargo xtask databases` gets the first two.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use redis::AsyncCommands;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};
use tempfile::TempDir;

use crate::LIMIT;
use crate::whole_runtime::{assert_both, run};

/// A server with a folder of its own, which listens on a Unix socket there; dropping it ends it.
struct Server {
    child: Child,
    folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGINT: PostgreSQL's fast shutdown, which also ends the processes that it has started.
        let _ = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

/// The program that the variable names, or one in these folders or on the path; `None` if there is
/// none.
fn find(variable: &str, name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    if let Some(program) = std::env::var_os(variable) {
        let program = PathBuf::from(program);
        assert!(program.is_file(), "{variable} names no file: {}", program.display());
        return Some(program);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).collect::<Vec<_>>();
    let found = folders.iter().chain(&in_path).map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        println!("SKIPPED: there is no {name} here; `cargo xtask databases` gets it");
    }
    found
}

/// A folder for the server, and the user that owns it: PostgreSQL refuses to run as root.
fn folder() -> (TempDir, Option<(u32, u32)>) {
    let folder = tempfile::tempdir().unwrap();
    let is_root = folder.path().metadata().unwrap().uid() == 0;
    if is_root {
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    (folder, is_root.then_some((NOBODY, NOBODY)))
}

fn command(program: &Path, user: Option<(u32, u32)>, folder: &TempDir) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder.path()).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null());
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// Returns once the server has its socket; panics if it ends before.
fn wait_for(socket: &str, mut server: Server) -> Server {
    let since = Instant::now();
    while std::os::unix::net::UnixStream::connect(server.folder.path().join(socket)).is_err() {
        let ended = server.child.try_wait().unwrap();
        assert!(ended.is_none(), "the server has ended: {ended:?}");
        assert!(since.elapsed() < LIMIT, "the server has no socket yet");
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

fn start_postgres() -> Option<Server> {
    // Debian keeps one folder for each version.
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    let postgres = find("POSTGRES", "postgres", &folders)?;
    // A link on the path leads to the other programs.
    let postgres = fs::canonicalize(postgres).unwrap();
    let (folder, user) = folder();
    let data = folder.path().join("data");
    let mut initdb = command(&postgres.with_file_name("initdb"), user, &folder);
    initdb.args(["--username", "dapple", "--auth", "trust", "--no-sync", "--encoding", "UTF8", "--pgdata"]).arg(&data);
    assert!(initdb.status().unwrap().success(), "initdb makes a cluster");
    let mut postgres = command(&postgres, user, &folder);
    postgres.arg("-D").arg(&data).arg("-k").arg(folder.path()).args(["-c", "listen_addresses=", "-c", "fsync=off"]);
    let child = postgres.stderr(Stdio::null()).spawn().unwrap();
    Some(wait_for(".s.PGSQL.5432", Server { child, folder }))
}

async fn connect(folder: PathBuf) -> PgPool {
    let options = PgConnectOptions::new_without_pgpass().socket(folder).port(5432).username("dapple");
    let options = options.database("postgres");
    let since = Instant::now();
    loop {
        let pool = PgPoolOptions::new().max_connections(4).acquire_timeout(LIMIT);
        match pool.connect_with(options.clone()).await {
            Ok(pool) => return pool,
            // "The database system is starting up", although it has its socket already.
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("57P03") => {
                assert!(since.elapsed() < LIMIT, "{error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Twenty tasks each move some cents and tell it; half of them do not commit.
async fn transfer(pool: &PgPool) {
    sqlx::query("DROP TABLE IF EXISTS accounts").execute(pool).await.unwrap();
    let create = "CREATE TABLE accounts (name TEXT PRIMARY KEY, cents BIGINT NOT NULL)";
    sqlx::query(create).execute(pool).await.unwrap();
    sqlx::query("INSERT INTO accounts VALUES ('ada', 1000), ('bob', 0)").execute(pool).await.unwrap();
    let mut listener = PgListener::connect_with(pool).await.unwrap();
    listener.listen("moved").await.unwrap();
    let tasks: Vec<_> = (1..=20i64)
        .map(|cents| {
            let pool = pool.clone();
            dapple::spawn(async move {
                let mut transaction = pool.begin().await.unwrap();
                for (name, change) in [("ada", -cents), ("bob", cents)] {
                    let update = sqlx::query("UPDATE accounts SET cents = cents + $1 WHERE name = $2");
                    update.bind(change).bind(name).execute(&mut *transaction).await.unwrap();
                    assert_both();
                }
                let notify = sqlx::query("SELECT pg_notify('moved', $1)").bind(cents.to_string());
                notify.execute(&mut *transaction).await.unwrap();
                match cents % 2 {
                    0 => transaction.commit().await.unwrap(),
                    _ => transaction.rollback().await.unwrap(),
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut moved = 0;
    for _ in 0..10 {
        moved += listener.recv().await.unwrap().payload().parse::<i64>().unwrap();
    }
    assert_eq!(moved, 110);
}

#[test]
fn sqlx_with_postgresql() {
    let Some(server) = start_postgres() else { return };
    let folder = server.folder.path().to_owned();
    run(move || {
        let folder = folder.clone();
        async move {
            let pool = connect(folder).await;
            transfer(&pool).await;
            let select = sqlx::query_as("SELECT name, cents FROM accounts ORDER BY name");
            let accounts: Vec<(String, i64)> = select.fetch_all(&pool).await.unwrap();
            assert_eq!(accounts, [("ada".to_owned(), 890), ("bob".to_owned(), 110)]);
            pool.close().await;
        }
    });
}

fn start_redis() -> Option<Server> {
    let redis = find("REDIS_SERVER", "redis-server", &[])?;
    let (folder, user) = folder();
    let mut redis = command(&redis, user, &folder);
    redis.args(["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--appendonly", "no"]);
    let child = redis.spawn().unwrap();
    Some(wait_for("redis.sock", Server { child, folder }))
}

#[test]
fn redis_with_a_real_server() {
    let Some(server) = start_redis() else { return };
    let url = format!("redis+unix://{}", server.folder.path().join("redis.sock").display());
    run(move || {
        let url = url.clone();
        async move {
            let mut connection = use_redis(&url).await;
            let waited: Option<(String, String)> = connection.blpop("nothing", 0.01).await.unwrap();
            assert_eq!(waited, None);
        }
    });
}

/// Counts in transactions of 50 tasks at a time.
async fn use_redis(url: &str) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let _: () = redis::cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let mut connection = connection.clone();
            dapple::spawn(async move {
                let key = format!("color:{number}");
                let (told, total): (i64, i64) = redis::pipe()
                    .atomic()
                    .set(&key, number)
                    .ignore()
                    .get(&key)
                    .incr("total", number)
                    .query_async(&mut connection)
                    .await
                    .unwrap();
                assert!(told == number && total >= number);
                assert_both();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let total: i64 = connection.get("total").await.unwrap();
    assert_eq!(total, 49 * 50 / 2);
    connection
}

/// Starts `dapple store serve`, as built for the tests of `dapple-cli`; returns its address, too.
fn start_store() -> Option<(Server, String)> {
    let mut target = std::env::current_exe().unwrap();
    // The tests are in `deps` of the folder with the programs.
    target.pop();
    target.pop();
    let dapple = find("DAPPLE", "dapple", &[target])?;
    let folder = tempfile::tempdir().unwrap();
    let store = format!("redb:{}", folder.path().join("store").display());
    let mut dapple = command(&dapple, None, &folder);
    let mut child = dapple.args(["store", "serve", &store, "--port", "0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let addr = line.strip_prefix("listening on ").and_then(|rest| rest.split(',').next()).unwrap().to_owned();
    Some((Server { child, folder }, addr))
}

#[test]
fn redis_with_a_store_of_dapple() {
    let Some((_server, addr)) = start_store() else { return };
    for version in ["", "?protocol=resp3"] {
        let url = format!("redis://{addr}/{version}");
        run(move || {
            let url = url.clone();
            async move {
                let mut connection = use_redis(&url).await;
                let _: () = connection.hset_multiple("h", &[("a", 1), ("b", 2)]).await.unwrap();
                let all: BTreeMap<String, i64> = connection.hgetall("h").await.unwrap();
                assert_eq!(all, BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]));
                let _: () = connection.set_ex("e", "x", 100).await.unwrap();
                assert!((99..=100).contains(&connection.ttl::<_, i64>("e").await.unwrap()));
                let mut keys: Vec<String> =
                    connection.scan_match("color:4*").await.unwrap().map(Result::unwrap).collect().await;
                keys.sort();
                assert_eq!(keys.len(), 11, "{keys:?}");
                let refused = connection.incr::<_, _, i64>("h", 1).await.unwrap_err();
                assert_eq!(refused.code(), Some("WRONGTYPE"));
                listen(&url, &mut connection).await;
            }
        });
    }
}

/// Subscribes to a channel and a pattern with a connection of its own, and publishes with the other.
async fn listen(url: &str, publisher: &mut redis::aio::MultiplexedConnection) {
    let client = redis::Client::open(url.split('?').next().unwrap()).unwrap();
    let mut listener = client.get_async_pubsub().await.unwrap();
    listener.subscribe("news").await.unwrap();
    listener.psubscribe("n*").await.unwrap();
    let receivers: i64 = publisher.publish("news", "dappled").await.unwrap();
    assert_eq!(receivers, 2);
    let mut messages = listener.on_message();
    let [first, second] = [messages.next().await.unwrap(), messages.next().await.unwrap()];
    assert_eq!((first.get_channel_name(), first.get_payload::<String>().unwrap()), ("news", "dappled".to_owned()));
    assert_eq!(second.get_pattern::<String>().unwrap(), "n*");
}

/// The user without rights, on every Linux.
const NOBODY: u32 = 65_534;
