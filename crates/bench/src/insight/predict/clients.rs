//! Programs with their clients in the same process, because two cores leave none for a load: each client asks again when
//! it has its answer.

use crate::colors::spin::Spin;
use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use dapple::Colored;
use dapple::net::{TcpListener, TcpStream};
use dapple::serve::ServeHandle;
use dapple::stage::Stage;
use dapple::store::{Redb, Store, StoreOptions, Table, TableOptions};
use dapple_sched::Runtime;
use hyper::Response;
use md5::{Digest, Md5};
use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A running program.
pub(super) struct Clients {
    runtime: Runtime,
    asked: Asked,
    tasks: Vec<dapple::task::JoinHandle<Result<()>>>,
    /// Servers and folders.
    _keep: Box<dyn Any>,
}

/// The answers so far, and whether to ask again.
#[derive(Clone)]
struct Asked {
    answers: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    /// A microsecond of work.
    spin_rounds: u64,
}

impl Asked {
    fn work(&self, us: u64) {
        Spin::of_rounds(self.spin_rounds * us).run();
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    fn answered(&self) {
        self.answers.fetch_add(1, Relaxed);
    }
}

impl Clients {
    fn start<F>(runtime: Runtime, asked: Asked, keep: impl Any, client: impl Fn(u64, Asked) -> F) -> Clients
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let entered = runtime.enter();
        let tasks = (0..CLIENTS).map(|number| dapple::spawn(client(number, asked.clone()))).collect();
        drop(entered);
        Clients { runtime, asked, tasks, _keep: Box::new(keep) }
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(super) fn ops(&self) -> u64 {
        self.asked.answers.load(Relaxed)
    }

    /// Lets the clients end; an error is that of a client with a wrong answer.
    pub(super) fn end(self) -> Result<()> {
        self.asked.stop.store(true, Relaxed);
        let until = Instant::now() + END_LIMIT;
        for task in self.tasks {
            while !task.is_finished() {
                ensure!(Instant::now() < until, "a client did not end");
                std::thread::sleep(Duration::from_millis(1));
            }
            self.runtime.block_on(task).map_err(|error| anyhow!("a client panicked: {error}"))??;
        }
        Ok(())
    }
}

fn parts(workers: usize, spin_rounds: u64) -> Result<(Runtime, Asked)> {
    let runtime = dapple::builder().workers(workers).build().context("cannot start Dapple's workers")?;
    Ok((runtime, Asked { answers: Arc::default(), stop: Arc::default(), spin_rounds }))
}

/// Orders of 40 us, and then 60 us in one state.
pub(super) fn bank(workers: usize, spin_rounds: u64) -> Result<Clients> {
    let (runtime, asked) = parts(workers, spin_rounds)?;
    let entered = runtime.enter();
    let accounts = Colored::new(0_u64);
    drop(entered);
    Ok(Clients::start(runtime, asked, (), |_, asked| {
        let accounts = accounts.clone();
        async move {
            while asked.goes_on() {
                asked.work(40);
                let book = |total: &mut u64| {
                    asked.work(60);
                    *total += 1;
                };
                accounts.with(book).await;
                asked.answered();
            }
            Ok(())
        }
    }))
}

/// Pages with 40 us of work, and 5 us in a cache that all use.
pub(super) fn serve(workers: usize, spin_rounds: u64) -> Result<Clients> {
    let (runtime, asked) = parts(workers, spin_rounds)?;
    let (addr, server) = page(&runtime, &asked, 40, 5)?;
    Ok(Clients::start(runtime, asked, server, move |_, asked| browse(addr, asked)))
}

/// A page over HTTP: its handler works so long for itself, and so long in a state of all handlers.
fn page(runtime: &Runtime, asked: &Asked, own_us: u64, cache_us: u64) -> Result<(SocketAddr, ServeHandle)> {
    let _entered = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    let (addr, cache, asked) = (listener.local_addr()?, Colored::new(0_u64), asked.clone());
    let service = tower::service_fn(move |_| {
        let (cache, asked) = (cache.clone(), asked.clone());
        async move {
            asked.work(own_us);
            let look_up = |hits: &mut u64| {
                asked.work(cache_us);
                *hits += 1;
            };
            cache.with(look_up).await;
            Ok::<_, Infallible>(Response::new(PAGE.to_owned()))
        }
    });
    let serving = dapple::serve(listener, service);
    let server = serving.handle();
    drop(dapple::spawn(async move { serving.await }));
    Ok((addr, server))
}

async fn browse(addr: SocketAddr, asked: Asked) -> Result<()> {
    let stream = TcpStream::connect(addr).await?;
    let mut received = Vec::new();
    while asked.goes_on() {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await?;
        received.clear();
        while !received.ends_with(PAGE.as_bytes()) {
            let mut chunk = [0; 1024];
            let count = stream.read(&mut chunk).await?;
            ensure!(count > 0 && received.len() < 4096, "no page: {:?}", String::from_utf8_lossy(&received));
            received.extend_from_slice(&chunk[..count]);
        }
        asked.answered();
    }
    Ok(())
}

/// A server that asks another one, with 20 us and 40 us of work.
pub(super) fn proxy(workers: usize, spin_rounds: u64) -> Result<Clients> {
    let (runtime, asked) = parts(workers, spin_rounds)?;
    let (origin, behind) = page(&runtime, &asked, 40, 1)?;
    let entered = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    let (addr, client, work) = (listener.local_addr()?, dapple::http::Client::new()?, asked.clone());
    let url = format!("http://{origin}/");
    let service = tower::service_fn(move |_| {
        let (client, url, work) = (client.clone(), url.clone(), work.clone());
        async move {
            work.work(20);
            let page = client.get(&url).await?.text().await?;
            Ok::<_, dapple::http::Error>(Response::new(page))
        }
    });
    let serving = dapple::serve(listener, service);
    let front = serving.handle();
    drop(dapple::spawn(async move { serving.await }));
    drop(entered);
    Ok(Clients::start(runtime, asked, (front, behind), move |_, asked| browse(addr, asked)))
}

/// Three stages one after the other, as in `dapple sign`: a digest, a log, another digest.
pub(super) fn sign(workers: usize, spin_rounds: u64) -> Result<Clients> {
    let (runtime, asked) = parts(workers, spin_rounds)?;
    let entered = runtime.enter();
    let digest = |name: &str| {
        Stage::builder(name).queue_len_max(256).width(1).color(dapple::Color::new()).wrap_sync(|body: Bytes| {
            let digest = Md5::digest(&body);
            [&digest[..], &body[16..]].concat().into()
        })
    };
    let work = asked.clone();
    let log = Stage::builder("log").queue_len_max(256).width(1).color(dapple::Color::new());
    let log = log.wrap_sync(move |body: Bytes| {
        work.work(10);
        body
    });
    let signer = digest("first").then(log.then(digest("second")));
    drop(entered);
    let body = Bytes::from(vec![7_u8; BODY_LEN]);
    let expected: Bytes = {
        let first = [&Md5::digest(&body)[..], &body[16..]].concat();
        [&Md5::digest(&first)[..], &first[16..]].concat().into()
    };
    Ok(Clients::start(runtime, asked, (), |_, asked| {
        let (signer, body, expected) = (signer.clone(), body.clone(), expected.clone());
        async move {
            while asked.goes_on() {
                match signer.ask(body.clone()).await {
                    Ok(signed) => ensure!(signed == expected, "a wrong digest"),
                    Err(error) => bail!("a stage refused: {error:?}"),
                }
                asked.answered();
            }
            Ok(())
        }
    }))
}

type Room = Colored<Vec<Arc<TcpStream>>>;

/// Four rooms of four visitors, over TCP: a line goes to all in the room, with 20 us of work in it, and 20 us before.
pub(super) fn chat(workers: usize, spin_rounds: u64) -> Result<Clients> {
    let (runtime, asked) = parts(workers, spin_rounds)?;
    let entered = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    let addr = listener.local_addr()?;
    let rooms: Vec<Room> = (0..ROOMS).map(|_| Room::new(Vec::new())).collect();
    let work = asked.clone();
    drop(dapple::spawn(async move {
        let mut visitors = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let (room, work) = (rooms[visitors % ROOMS].clone(), work.clone());
            visitors += 1;
            drop(dapple::spawn(async move { visit(Arc::new(stream), &room, &work).await }));
        }
    }));
    drop(entered);
    Ok(Clients::start(runtime, asked, (), move |number, asked| async move {
        let stream = TcpStream::connect(addr).await?;
        let line = format!("visitor {number:02} says nothing\n");
        let (mut received, mut from) = (Vec::new(), 0);
        while asked.goes_on() {
            stream.write_all(line.as_bytes()).await?;
            // Lines of others come, too.
            while !received[from..].chunks_exact(line.len()).any(|other| other == line.as_bytes()) {
                from = received.len() / line.len() * line.len();
                let mut chunk = [0; 1024];
                let count = stream.read(&mut chunk).await?;
                ensure!(count > 0, "the chat has ended");
                received.extend_from_slice(&chunk[..count]);
            }
            received.drain(..received.len() / line.len() * line.len());
            from = 0;
            asked.answered();
        }
        Ok(())
    }))
}

async fn visit(stream: Arc<TcpStream>, room: &Room, work: &Asked) -> std::io::Result<()> {
    room.with(|members| members.push(stream.clone())).await;
    let mut received = Vec::new();
    loop {
        let mut chunk = [0; 1024];
        let count = stream.read(&mut chunk).await?;
        if count == 0 {
            return Ok(());
        }
        received.extend_from_slice(&chunk[..count]);
        while let Some(end) = received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = received.drain(..=end).collect();
            work.work(20);
            let say = |members: &mut Vec<Arc<TcpStream>>| {
                work.work(20);
                members.retain(|member| member.try_write(&line).is_ok_and(|count| count == line.len()));
            };
            room.with(say).await;
        }
    }
}

/// Gets from a table on disk, and a put for each 50 of them, with 20 us of work for each.
pub(super) fn store(workers: usize, spin_rounds: u64) -> Result<Clients> {
    let (runtime, asked) = parts(workers, spin_rounds)?;
    let folder = tempfile::tempdir_in("/var/tmp").context("no folder for the table")?;
    let engine = Redb::new(folder.path());
    let table: Table<u64, u64, Redb> = runtime.block_on(async move {
        let store = Store::open(engine, StoreOptions::default()).await?;
        let table = store.create::<u64, u64>("t", TableOptions::default()).await?;
        let mut batch = store.batch();
        (0..KEYS).try_for_each(|key| batch.put(&table, &key, &key))?;
        batch.commit().await?;
        anyhow::Ok(table)
    })?;
    Ok(Clients::start(runtime, asked, folder, |number, asked| {
        let table = table.clone();
        async move {
            let mut at = number;
            while asked.goes_on() {
                // Each client has its own keys.
                at = (at + 7 * CLIENTS) % KEYS;
                let key = at - at % CLIENTS + number;
                asked.work(20);
                match at / CLIENTS % 50 {
                    0 => _ = table.put(&key, &key).await?,
                    _ => ensure!(table.get(&key).await? == Some(key), "key {key} differs"),
                }
                asked.answered();
            }
            Ok(())
        }
    }))
}

const CLIENTS: u64 = 16;
const ROOMS: usize = 4;
const KEYS: u64 = 1_600;
const BODY_LEN: usize = 16 * 1024;
const PAGE: &str = "Hello, world!";
const END_LIMIT: Duration = Duration::from_secs(20);
