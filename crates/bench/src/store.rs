//! `bench store`: tables on disk, compared with the same engine without Dapple.

mod etcd;

use crate::machine::{end_with_parent, own_command, own_cpu, run_apart};
use crate::output::{Output, Report};
use crate::stats::{Table, median, paired};
use crate::words::{check_secs, checked, name, verdict};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use dapple::JoinHandle;
use dapple::etcd::Put;
use dapple::store::engine::{Change, Engine, Partition, Place, TableId, Transactions};
use dapple::store::{Durability, Etcd, Fjall, Redb, Store, StoreOptions, TableOptions};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Arguments of `bench store`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// The peers (default: all)
    #[arg(long, value_delimiter = ',', value_name = "PEER,...")]
    peer: Vec<Peer>,
    /// The operations (default: all)
    #[arg(long, value_delimiter = ',', value_name = "ROW,...")]
    row: Vec<Row>,
    /// Numbers of callers, each of which waits for an answer; without Dapple: the writes of one
    /// commit
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,16,100", value_parser = clap::value_parser!(u16).range(1..=1000))]
    callers: Vec<u16>,
    /// Numbers of workers of Dapple
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Vec<u16>,
    /// Partitions of Dapple's tables [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    partitions: u32,
    /// Repetitions; the peers take turns within each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds measured per run
    #[arg(long, default_value_t = 2.0)]
    secs: f64,
    /// The directory for the files, on the disk to measure; one in memory has no syncs to wait for
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

/// A peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Peer {
    /// A table of Dapple on redb
    Redb,
    /// A table of Dapple on fjall
    Fjall,
    /// redb on one thread: gets one by one, puts in commits of as many as there are callers
    RawRedb,
    /// redb, each put in a separate commit
    RawRedbSingle,
    /// fjall on one thread, with the same commits
    RawFjall,
    /// A table of Dapple on etcd, one member on this machine (the variable ETCD names the program)
    Etcd,
    /// Dapple's client of etcd: each caller gets and puts by itself
    RawEtcd,
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Row {
    /// Random existing keys, in memory
    Get,
    /// Random keys get new values, each durable before its answer
    Put,
    /// The same, and returns the old value, decoded
    Swap,
    /// A new table gets 50,000 keys in order, as one bulk load; without Dapple in commits of a page of it
    Load,
    /// The same keys without an order, as batches of a page
    LoadRandom,
}

/// Arguments of the hidden `store-trial` command.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    #[arg(long)]
    peer: Peer,
    #[arg(long)]
    row: Row,
    #[arg(long)]
    callers: usize,
    #[arg(long)]
    workers: usize,
    #[arg(long)]
    partitions: u32,
    #[arg(long)]
    run: usize,
    #[arg(long)]
    secs: f64,
    #[arg(long)]
    dir: PathBuf,
}

/// The result of one run: one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Measured {
    peer: Peer,
    row: Row,
    /// Callers, or writes of one commit.
    callers: usize,
    /// Workers; 0 for one plain thread.
    workers: usize,
    /// Number of the repetition, from 0.
    run: usize,
    /// Operations a second.
    ops_per_s: f64,
    /// User and system time of the process, microseconds an operation.
    cpu_us_per_op: f64,
    /// Whether the data was right afterwards.
    checked: bool,
    /// The finding of the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

const KEYS: u64 = 10_000;
const VALUE_LEN: usize = 100;
const TABLE: TableId = TableId(100);

/// Runs the requested trials and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    check_secs(args.secs, 3_600.0)?;
    let about = args.output.begin()?;
    let all = args.output.repeat(
        args.runs,
        |run| trials(args, run),
        |trial| (format!("{}/{}", name(trial.row), trial.callers), format!("{}/{}w", name(trial.peer), trial.workers)),
        |trial| apart(trial).unwrap_or_else(|error| failed(trial, format!("{error:#}"))),
    )?;
    args.output.end(&about, &report(&all, args))?;
    verdict(&all, |run| {
        let problem = run.problem.as_ref()?;
        let what = format!("{} {}/{} workers={}", name(run.peer), name(run.row), run.callers, run.workers);
        Some(format!("{what} run={}: {problem}", run.run))
    })
}

fn trials(args: &Args, run: usize) -> Vec<TrialArgs> {
    let mut peers: Vec<Peer> = Peer::value_variants().to_vec();
    let has_etcd = etcd::program().is_some();
    peers.retain(|peer| args.peer.is_empty() && (has_etcd || !peer.is_etcd()) || args.peer.contains(peer));
    let first = run % peers.len();
    peers.rotate_left(first);
    let rows = Row::value_variants().iter().filter(|row| args.row.is_empty() || args.row.contains(row));
    let mut trials = Vec::new();
    for &row in rows {
        for &callers in &args.callers {
            for &peer in &peers {
                let of_row = match peer {
                    Peer::Redb | Peer::Fjall => true,
                    Peer::RawRedb | Peer::RawFjall => {
                        row != Row::Swap && (row == Row::Put || callers == args.callers[0])
                    }
                    Peer::RawRedbSingle => row == Row::Put && callers == args.callers[0],
                    Peer::Etcd => !row.is_load() && row != Row::Swap,
                    Peer::RawEtcd => row == Row::Put,
                };
                // A load has one caller.
                let of_row = of_row && (!row.is_load() || callers == args.callers[0]);
                let plain = [0];
                let workers = if peer.is_raw() { &plain[..] } else { &args.workers };
                for &workers in workers.iter().filter(|_| of_row) {
                    let (callers, workers) = (usize::from(callers), usize::from(workers));
                    let (partitions, dir) = (args.partitions, args.dir.clone());
                    trials.push(TrialArgs { peer, row, callers, workers, partitions, run, secs: args.secs, dir });
                }
            }
        }
    }
    trials
}

impl Row {
    fn is_load(self) -> bool {
        matches!(self, Row::Load | Row::LoadRandom)
    }
}

impl Peer {
    fn is_raw(self) -> bool {
        matches!(self, Peer::RawRedb | Peer::RawRedbSingle | Peer::RawFjall)
    }

    fn is_etcd(self) -> bool {
        matches!(self, Peer::Etcd | Peer::RawEtcd)
    }
}

fn apart(args: &TrialArgs) -> Result<Measured> {
    let mut command = own_command("store-trial")?;
    command.args(["--peer", &name(args.peer), "--row", &name(args.row), "--callers", &args.callers.to_string()]);
    command.args(["--workers", &args.workers.to_string(), "--run", &args.run.to_string()]);
    command.args(["--partitions", &args.partitions.to_string()]);
    command.args(["--secs", &args.secs.to_string(), "--dir"]).arg(&args.dir);
    run_apart(command, Duration::from_secs_f64(args.secs + 60.0))
}

fn failed(args: &TrialArgs, problem: String) -> Measured {
    let TrialArgs { peer, row, callers, workers, run, .. } = *args;
    Measured {
        peer,
        row,
        callers,
        workers,
        run,
        ops_per_s: 0.0,
        cpu_us_per_op: 0.0,
        checked: false,
        problem: Some(problem),
    }
}

/// Runs one trial and prints its line.
pub(crate) fn run_trial(args: &TrialArgs) -> Result<()> {
    end_with_parent()?;
    let directory = tempfile::tempdir_in(&args.dir).context("no directory for the files")?;
    let path = directory.path();
    let (ops, cpu, secs) = match args.peer {
        Peer::Redb => layered(args, Redb::new(path))?,
        Peer::Fjall => layered(args, Fjall::new(path))?,
        Peer::RawRedb => raw(args, &Redb::new(path), args.callers)?,
        Peer::RawRedbSingle => raw(args, &Redb::new(path), 1)?,
        Peer::RawFjall => raw(args, &Fjall::new(path), args.callers)?,
        Peer::Etcd | Peer::RawEtcd => {
            let member = etcd::Member::start(path)?;
            if args.peer == Peer::Etcd {
                layered(args, Etcd::new(member.client()?, "bench"))?
            } else {
                raw_etcd(args, &member)?
            }
        }
    };
    ensure!(ops > 0, "nothing was done");
    let measured = Measured {
        ops_per_s: ops as f64 / secs,
        cpu_us_per_op: cpu.as_secs_f64() * 1e6 / ops as f64,
        checked: true,
        problem: None,
        ..failed(args, String::new())
    };
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// The operations of a run, their processor time, and the seconds.
type Ran = (u64, Duration, f64);

/// The value of a key after this many writes.
fn value(key: u64, writes: u64) -> Bytes {
    let mut value = vec![0; VALUE_LEN];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value[8..16].copy_from_slice(&writes.to_le_bytes());
    value.into()
}

/// Runs a table of Dapple. Each caller has its own keys, so that it knows their values.
fn layered<E: Transactions>(args: &TrialArgs, engine: E) -> Result<Ran> {
    let runtime = dapple::builder().workers(args.workers).build()?;
    let (row, callers, secs) = (args.row, args.callers as u64, args.secs);
    let mut options = StoreOptions::default();
    options.partitions = args.partitions;
    runtime.block_on(async move {
        let store = Store::open(engine, options).await?;
        if row.is_load() {
            return load(&store, row, secs).await;
        }
        let table = store.create::<u64, Bytes>("t", TableOptions::default()).await?;
        let keys: Vec<u64> = (0..KEYS).collect();
        for keys in keys.chunks(1000) {
            let mut batch = store.batch();
            keys.iter().try_for_each(|&key| batch.put(&table, &key, &value(key, 0)))?;
            batch.commit().await?;
        }
        let (stop, ops) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tasks: Vec<_> = (0..callers)
            .map(|caller| {
                let (table, stop, ops) = (table.clone(), stop.clone(), ops.clone());
                dapple::Color::new().spawn(async move {
                    let own = KEYS / callers;
                    let mut writes = vec![0_u64; own as usize];
                    let mut random = caller + 1;
                    while !stop.load(Relaxed) {
                        let at = next(&mut random) % own;
                        let key = at * callers + caller;
                        match row {
                            Row::Get => ensure!(table.get(&key).await? == Some(value(key, 0)), "key {key} differs"),
                            Row::Put | Row::Swap => {
                                let known = &mut writes[at as usize];
                                let written = table.put(&key, &value(key, *known + 1)).await?;
                                if row == Row::Swap {
                                    let old = written.previous.map(|old| old.value);
                                    ensure!(old == Some(value(key, *known)), "the old value of {key} differs");
                                }
                                *known += 1;
                            }
                            Row::Load | Row::LoadRandom => anyhow::bail!("a load has one caller"),
                        }
                        ops.fetch_add(1, Relaxed);
                    }
                    for (at, writes) in writes.into_iter().enumerate() {
                        let key = at as u64 * callers + caller;
                        ensure!(table.get(&key).await? == Some(value(key, writes)), "key {key} differs at the end");
                    }
                    Ok(())
                })
            })
            .collect();
        measure(&stop, &ops, tasks, secs).await
    })
}

/// Counts operations for these seconds, then stops the callers, which check what they wrote.
async fn measure(stop: &AtomicBool, ops: &AtomicU64, callers: Vec<JoinHandle<Result<()>>>, secs: f64) -> Result<Ran> {
    let (ops_before, cpu, begin) = (ops.load(Relaxed), own_cpu(), Instant::now());
    dapple::time::sleep(Duration::from_secs_f64(secs)).await;
    let ran = (ops.load(Relaxed) - ops_before, own_cpu() - cpu, begin.elapsed().as_secs_f64());
    stop.store(true, Relaxed);
    for caller in callers {
        caller.await.context("a caller panicked")??;
    }
    Ok(ran)
}

/// The keys of a table that is loaded, and the most of one commit.
const LOADED: u64 = 50_000;
const PAGE: usize = 4_096;

/// The keys in order, or in another one that has all of them.
fn loaded_keys(row: Row) -> impl Iterator<Item = u64> {
    const STEP: u64 = 7_919;
    (0..LOADED).map(move |at| if row == Row::Load { at } else { at * STEP % LOADED })
}

/// Loads one table after the other. Only the loading counts.
async fn load<E: Transactions>(store: &Store<E>, row: Row, secs: f64) -> Result<Ran> {
    let (mut ops, mut cpu, mut time) = (0, Duration::ZERO, Duration::ZERO);
    for round in 0.. {
        let name = format!("loaded {round}");
        let table = store.create_ordered::<u64, Bytes>(&name, TableOptions::default()).await?;
        let (cpu_before, begin) = (own_cpu(), Instant::now());
        if row == Row::Load {
            let entries = loaded_keys(row).map(|key| (key, value(key, round)));
            table.bulk_load(futures_util::stream::iter(entries), |_| {}).await?;
        } else {
            let keys: Vec<u64> = loaded_keys(row).collect();
            for page in keys.chunks(PAGE) {
                let mut batch = store.batch();
                page.iter().try_for_each(|key| batch.put(&table, key, &value(*key, round)))?;
                batch.commit_each().await.into_iter().try_for_each(|result| result.map(drop))?;
            }
        }
        (cpu, time) = (cpu + (own_cpu() - cpu_before), time + begin.elapsed());
        ops += LOADED;
        ensure!(table.count().await? == LOADED, "keys are missing");
        for key in (0..LOADED).step_by(997) {
            ensure!(table.get(&key).await? == Some(value(key, round)), "key {key} differs");
        }
        store.destroy(&name).await?;
        if time.as_secs_f64() >= secs {
            break;
        }
    }
    Ok((ops, cpu, time.as_secs_f64()))
}

/// Loads one table of an engine after the other, on this thread.
fn raw_load<P: Partition>(row: Row, partition: &P, secs: f64) -> Result<Ran> {
    let (mut ops, mut cpu, mut time) = (0, Duration::ZERO, Duration::ZERO);
    for round in 0.. {
        let table = TableId(TABLE.0 + round);
        let (cpu_before, begin) = (own_cpu(), Instant::now());
        let keys: Vec<u64> = loaded_keys(row).collect();
        for page in keys.chunks(PAGE) {
            let put = |key: &u64| Change::Put(table, key.to_be_bytes().to_vec(), value(*key, round).to_vec());
            partition.commit(&page.iter().map(put).collect::<Vec<_>>())?;
        }
        (cpu, time) = (cpu + (own_cpu() - cpu_before), time + begin.elapsed());
        ops += LOADED;
        ensure!(partition.len(table)? == LOADED, "keys are missing");
        partition.commit(&[Change::DropTable(table)])?;
        if time.as_secs_f64() >= secs {
            break;
        }
    }
    Ok((ops, cpu, time.as_secs_f64()))
}

/// Runs an engine on this thread, with commits of this many writes.
fn raw<E: Engine>(args: &TrialArgs, engine: &E, commit_len: usize) -> Result<Ran> {
    let partition = engine.open(Place::Partition { durability: Durability::Synced, index: 0 })?;
    if args.row.is_load() {
        return raw_load(args.row, &partition, args.secs);
    }
    let put = |key: u64, writes: u64| Change::Put(TABLE, key.to_be_bytes().to_vec(), value(key, writes).to_vec());
    let all: Vec<Change> = (0..KEYS).map(|key| put(key, 0)).collect();
    partition.commit(&all)?;
    let (mut writes, mut random, mut ops) = (vec![0_u64; KEYS as usize], 1, 0);
    let (cpu, begin) = (own_cpu(), Instant::now());
    while begin.elapsed().as_secs_f64() < args.secs {
        if args.row == Row::Get {
            let key = next(&mut random) % KEYS;
            let found = partition.get(TABLE, &key.to_be_bytes())?;
            ensure!(found.as_deref() == Some(&value(key, 0)[..]), "key {key} differs");
            ops += 1;
            continue;
        }
        let mut changes = Vec::with_capacity(commit_len);
        for _ in 0..commit_len {
            let key = next(&mut random) % KEYS;
            writes[key as usize] += 1;
            changes.push(put(key, writes[key as usize]));
        }
        partition.commit(&changes)?;
        ops += commit_len as u64;
    }
    let ran = (ops, own_cpu() - cpu, begin.elapsed().as_secs_f64());
    for (key, writes) in writes.into_iter().enumerate() {
        let found = partition.get(TABLE, &(key as u64).to_be_bytes())?;
        ensure!(found.as_deref() == Some(&value(key as u64, writes)[..]), "key {key} differs at the end");
    }
    Ok(ran)
}

/// Runs callers of the client, each of which puts its own keys.
fn raw_etcd(args: &TrialArgs, member: &etcd::Member) -> Result<Ran> {
    let runtime = dapple::builder().workers(args.workers).build()?;
    let (callers, secs) = (args.callers as u64, args.secs);
    let client = member.client()?;
    runtime.block_on(async move {
        let (stop, ops) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tasks: Vec<_> = (0..callers)
            .map(|caller| {
                let (client, stop, ops) = (client.clone(), stop.clone(), ops.clone());
                dapple::Color::new().spawn(async move {
                    let own = KEYS / callers;
                    let mut writes = vec![0_u64; own as usize];
                    let mut random = caller + 1;
                    let name = |at: u64| (at * callers + caller).to_be_bytes().to_vec();
                    while !stop.load(Relaxed) {
                        let at = next(&mut random) % own;
                        let known = &mut writes[at as usize];
                        *known += 1;
                        client.put(Put::new(name(at), value(at, *known))).await?;
                        ops.fetch_add(1, Relaxed);
                    }
                    for (at, writes) in (0..).zip(writes).filter(|(_, writes)| *writes > 0) {
                        let found = client.get(name(at)).await?.context("a key is missing")?;
                        ensure!(found.value == value(at, writes), "a key differs at the end");
                    }
                    Ok(())
                })
            })
            .collect();
        measure(&stop, &ops, tasks, secs).await
    })
}

/// A generator of numbers without pattern (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 11
}

/// A figure of a run.
type Figure = fn(&Measured) -> f64;

/// The runs of one peer in one row.
fn runs(all: &[Measured], row: Row, peer: Peer, callers: usize, workers: usize) -> Vec<&Measured> {
    let is_it = |run: &&Measured| (run.peer, run.row, run.callers, run.workers) == (peer, row, callers, workers);
    all.iter().filter(is_it).collect()
}

/// The goals that these runs of a layered peer can be held to, and whether they are met.
fn goals(all: &[Measured], trial: &TrialArgs, over: impl Fn(Figure) -> Option<f64>) -> String {
    let own = runs(all, trial.row, trial.peer, trial.callers, trial.workers);
    let ratio = |base: Vec<&Measured>, figure: Figure| paired(&own, &base, |run| run.run, figure);
    let (rate, cpu): (Figure, Figure) = (|run| run.ops_per_s, |run| run.cpu_us_per_op);
    let at_one_worker = || runs(all, trial.row, trial.peer, trial.callers, 1);
    let mut goals = Vec::new();
    let mut goal = |found: Option<f64>, text: &str, is_met: fn(f64) -> bool| {
        if let Some(found) = found {
            goals.push(format!("{text}: {}", if is_met(found) { "met" } else { "MISSED" }));
        }
    };
    match trial.row {
        Row::Get if trial.peer == Peer::Etcd => {
            let embedded = runs(all, Row::Get, Peer::Redb, trial.callers, trial.workers);
            goal(ratio(embedded, cpu), "CPU <= 1.5x redb", |found| found <= 1.5);
        }
        Row::Put if trial.peer == Peer::Etcd => {
            goal(over(cpu), "CPU <= 1.15", |found| found <= 1.15);
            goal(over(rate), "rate >= 0.95", |found| found >= 0.95);
        }
        Row::Get => {
            goal(over(cpu), "CPU <= 1.25", |found| found <= 1.25);
            if trial.workers == 2 && trial.callers > 1 {
                goal(ratio(at_one_worker(), rate), ">= 1.6x one worker", |found| found >= 1.6);
            }
        }
        Row::Put => {
            goal(over(rate), "rate >= 0.85", |found| found >= 0.85);
            if trial.peer == Peer::Redb && trial.callers >= 100 {
                // It is measured with the first number of callers only, and has none.
                let single: Vec<&Measured> = all.iter().filter(|run| run.peer == Peer::RawRedbSingle).collect();
                goal(ratio(single, rate), ">= 10x single commits", |found| found >= 10.0);
            }
            if trial.workers == 2 {
                goal(ratio(at_one_worker(), rate), ">= 0.95x one worker", |found| found >= 0.95);
            }
        }
        Row::Swap => {
            let put = runs(all, Row::Put, trial.peer, trial.callers, trial.workers);
            goal(ratio(put, rate), "<= 1.15x a put", |found| found >= 1.0 / 1.15);
        }
        Row::Load | Row::LoadRandom => {}
    }
    goals.join("; ")
}

fn report(all: &[Measured], args: &Args) -> Report {
    let mut tables: Vec<(Row, Table)> = Vec::new();
    for trial in trials(args, 0) {
        let own = runs(all, trial.row, trial.peer, trial.callers, trial.workers);
        let raw = match trial.peer {
            Peer::Redb | Peer::RawRedbSingle => Some(Peer::RawRedb),
            Peer::Fjall => Some(Peer::RawFjall),
            Peer::Etcd => Some(Peer::RawEtcd),
            Peer::RawRedb | Peer::RawFjall | Peer::RawEtcd => None,
        };
        // Gets without Dapple are the same for any number of callers.
        let callers = if trial.row == Row::Get { usize::from(args.callers[0]) } else { trial.callers };
        let workers = if trial.peer == Peer::Etcd { trial.workers } else { 0 };
        let base = raw.map(|peer| runs(all, trial.row, peer, callers, workers)).unwrap_or_default();
        let over = |figure: Figure| paired(&own, &base, |run| run.run, figure);
        let shown = |ratio: Option<f64>| ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let of = |figure: Figure| median(&own.iter().map(|run| figure(run)).collect::<Vec<_>>());
        if tables.last().is_none_or(|(row, _)| *row != trial.row) {
            let head = ["callers", "peer", "workers", "ops/s", "over raw", "CPU us/op", "over raw", "goal", "checked"];
            tables.push((trial.row, Table::new(&head)));
        }
        let Some((_, table)) = tables.last_mut() else { continue };
        table.row(vec![
            if trial.row.is_load() { String::new() } else { trial.callers.to_string() },
            name(trial.peer),
            trial.workers.to_string(),
            format!("{:.0}", of(|run| run.ops_per_s)),
            shown(over(|run| run.ops_per_s)),
            format!("{:.2}", of(|run| run.cpu_us_per_op)),
            shown(over(|run| run.cpu_us_per_op)),
            if trial.peer.is_raw() || trial.peer == Peer::RawEtcd { String::new() } else { goals(all, &trial, over) },
            checked(own.iter().map(|run| run.checked)),
        ]);
    }
    // A table for each row, so that rows can be measured at different times.
    let title = |row: Row| match row {
        Row::Get => format!("get: {KEYS} keys with values of {VALUE_LEN} bytes, in memory"),
        Row::Put => format!("put: {KEYS} keys with values of {VALUE_LEN} bytes, each write durable"),
        Row::Swap => format!("swap: puts that return the old value, {KEYS} keys with values of {VALUE_LEN} bytes"),
        Row::Load => format!("load: {LOADED} new keys in order, durable in pages"),
        Row::LoadRandom => format!("load-random: {LOADED} new keys without an order, durable in pages"),
    };
    Report {
        runs: format!("{} of {} s each, the peers by turns", args.runs, args.secs),
        tables: tables.into_iter().map(|(row, table)| (title(row), table)).collect(),
        legend: "callers: those that each wait for an answer (raw: writes of one commit); workers 0: one plain thread; over \
                 raw: median of the ratios to the same engine without Dapple, of the same repetition",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_does_each_row_and_checks_it() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        for &row in Row::value_variants() {
            let (dir, secs) = (dir.to_owned(), 0.05);
            let trial =
                |peer| TrialArgs { peer, row, callers: 4, workers: 2, partitions: 2, run: 0, secs, dir: dir.clone() };
            assert!(layered(&trial(Peer::Redb), Redb::new(dir.join(format!("{row:?}")))).unwrap().0 > 0);
            if row != Row::Swap {
                assert!(raw(&trial(Peer::RawFjall), &Fjall::new(dir.join(format!("raw{row:?}"))), 4).unwrap().0 > 0);
            }
        }
    }
}
