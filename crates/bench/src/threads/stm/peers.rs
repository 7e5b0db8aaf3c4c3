//! The banks of all peers.

use super::bank::{Bank, OPENING_BALANCE, Run, watch};
use super::{Case, Figures};
use crate::experiment::{Peer, Trial};
use anyhow::{Result, bail};
use dapple_sched::{Colored, Runtime, when, yield_now};
use std::sync::{Arc, Mutex, PoisonError};

/// Measures the bank of the trial's peer.
pub(super) fn with_bank(trial: &Trial<Case>) -> Result<Figures> {
    let Case { accounts, workers, .. } = trial.case;
    match trial.peer {
        Peer::Dapple => watch(trial, Dapple::new(accounts), on_dapple),
        Peer::DappleThreads => watch(trial, DappleThreads(Dapple::new(accounts)), on_threads),
        Peer::DappleWhen => {
            let runtime = Runtime::builder().workers(workers).build()?;
            let color = || Colored::with_color(OPENING_BALANCE, &runtime.handle().new_color());
            let bank = When((0..accounts).map(|_| color()).collect());
            watch(trial, bank, |run, bank, workers| {
                spawn_all(&runtime, run, bank, workers);
                Ok(runtime)
            })
        }
        Peer::FastStm => {
            watch(trial, FastStm((0..accounts).map(|_| fast_stm::TVar::new(OPENING_BALANCE)).collect()), on_threads)
        }
        Peer::AsyncStm => {
            let bank = AsyncStm((0..accounts).map(|_| async_stm::TVar::new(OPENING_BALANCE)).collect());
            watch(trial, bank, |run, bank, workers| {
                let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build()?;
                for worker in 0..workers {
                    let (run, bank) = (run.clone(), bank.clone());
                    runtime.spawn(async move { run.work(&*bank, worker, tokio::task::yield_now).await });
                }
                Ok(runtime)
            })
        }
        Peer::Mutex => watch(trial, Mutexes((0..accounts).map(|_| Account::default()).collect()), on_threads),
        other => bail!("{other:?} has no bank"),
    }
}

fn on_threads<B: Bank>(run: &Arc<Run>, bank: &Arc<B>, workers: usize) -> Result<()> {
    for worker in 0..workers {
        let (run, bank) = (run.clone(), bank.clone());
        std::thread::Builder::new().spawn(move || dapple_sched::block_on(run.work(&*bank, worker, async || ())))?;
    }
    Ok(())
}

fn on_dapple<B: Bank>(run: &Arc<Run>, bank: &Arc<B>, workers: usize) -> Result<Runtime> {
    let runtime = Runtime::builder().workers(workers).build()?;
    spawn_all(&runtime, run, bank, workers);
    Ok(runtime)
}

fn spawn_all<B: Bank>(runtime: &Runtime, run: &Arc<Run>, bank: &Arc<B>, workers: usize) {
    for worker in 0..workers {
        let (run, bank) = (run.clone(), bank.clone());
        drop(runtime.spawn(async move { run.work(&*bank, worker, yield_now).await }));
    }
}

struct Dapple(Vec<dapple_stm::TVar<u64>>);

impl Dapple {
    fn new(accounts: usize) -> Dapple {
        Dapple((0..accounts).map(|_| dapple_stm::TVar::new(OPENING_BALANCE)).collect())
    }

    #[inline]
    fn transfer_in(&self, tx: &mut dapple_stm::Tx, from: usize, to: usize) -> dapple_stm::StmResult<()> {
        tx.modify(&self.0[from], |balance| balance.wrapping_sub(1))?;
        tx.modify(&self.0[to], |balance| balance.wrapping_add(1))
    }
}

impl Bank for Dapple {
    fn transfer(&self, from: usize, to: usize) -> impl Future<Output = ()> + Send {
        dapple_stm::atomically(move |tx| self.transfer_in(tx, from, to))
    }

    fn sum(&self) -> u64 {
        dapple_stm::atomically_blocking(|tx| {
            let mut sum = 0_u64;
            for account in &self.0 {
                sum = sum.wrapping_add(tx.read(account)?);
            }
            Ok(sum)
        })
    }
}

struct DappleThreads(Dapple);

impl Bank for DappleThreads {
    async fn transfer(&self, from: usize, to: usize) {
        dapple_stm::atomically_blocking(|tx| self.0.transfer_in(tx, from, to));
    }

    fn sum(&self) -> u64 {
        self.0.sum()
    }
}

struct When(Vec<Colored<u64>>);

impl Bank for When {
    async fn transfer(&self, from: usize, to: usize) {
        when((&self.0[from], &self.0[to]))
            .with(|(from, to)| {
                *from = from.wrapping_sub(1);
                *to = to.wrapping_add(1);
            })
            .await;
    }

    fn sum(&self) -> u64 {
        when(&self.0[..])
            .with_blocking(|accounts| accounts.into_iter().fold(0_u64, |sum, next| sum.wrapping_add(*next)))
    }
}

struct FastStm(Vec<fast_stm::TVar<u64>>);

impl Bank for FastStm {
    async fn transfer(&self, from: usize, to: usize) {
        fast_stm::atomically(|tx| {
            let left = self.0[from].read(tx)?;
            self.0[from].write(tx, left.wrapping_sub(1))?;
            let right = self.0[to].read(tx)?;
            self.0[to].write(tx, right.wrapping_add(1))
        });
    }

    fn sum(&self) -> u64 {
        fast_stm::atomically(|tx| {
            let mut sum = 0_u64;
            for account in &self.0 {
                sum = sum.wrapping_add(account.read(tx)?);
            }
            Ok(sum)
        })
    }
}

struct AsyncStm(Vec<async_stm::TVar<u64>>);

impl Bank for AsyncStm {
    async fn transfer(&self, from: usize, to: usize) {
        async_stm::atomically(|| {
            self.0[from].update(|balance| balance.wrapping_sub(1))?;
            self.0[to].update(|balance| balance.wrapping_add(1))
        })
        .await;
    }

    fn sum(&self) -> u64 {
        dapple_sched::block_on(async_stm::atomically(|| {
            let mut sum = 0_u64;
            for account in &self.0 {
                sum = sum.wrapping_add(*account.read()?);
            }
            Ok(sum)
        }))
    }
}

/// On its own cache line, as a variable of `dapple::stm`.
#[repr(align(64))]
struct Account(Mutex<u64>);

impl Default for Account {
    fn default() -> Account {
        Account(Mutex::new(OPENING_BALANCE))
    }
}

struct Mutexes(Vec<Account>);

impl Bank for Mutexes {
    async fn transfer(&self, from: usize, to: usize) {
        let lock = |index: usize| self.0[index].0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut low, mut high) = (lock(from.min(to)), lock(from.max(to)));
        let (source, target) = if from < to { (&mut low, &mut high) } else { (&mut high, &mut low) };
        **source = source.wrapping_sub(1);
        **target = target.wrapping_add(1);
    }

    fn sum(&self) -> u64 {
        let all: Vec<_> =
            self.0.iter().map(|account| account.0.lock().unwrap_or_else(PoisonError::into_inner)).collect();
        all.iter().fold(0, |sum, account| sum.wrapping_add(**account))
    }
}
