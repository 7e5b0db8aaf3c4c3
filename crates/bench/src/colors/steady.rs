//! Workloads in this process, for benches that need the runtime on which it runs.

use super::case::{Case, Workload};
use super::dapple;
use super::ledger::Run;
use super::spin::Spin;
use super::trial::{SETTLE_LIMIT, Started};
use anyhow::{Context, Result};
use dapple_sched::{Handle, Runtime};

/// A workload that runs until it is stopped.
pub(crate) struct Steady {
    run: &'static Run,
    started: Started,
    handle: Handle,
}

impl Steady {
    /// Starts the chains of W1, with this much work in each callback.
    pub(crate) fn start(workers: usize, spin_rounds: u64) -> Result<Steady> {
        Steady::of(Case::new(Workload::W1, None, None, WORK_NS), workers, spin_rounds)
    }

    /// The same of any workload, with colors that begin on all workers.
    pub(crate) fn of(case: Case, workers: usize, spin_rounds: u64) -> Result<Steady> {
        let run: &'static Run = Box::leak(Box::new(Run::new(case, Spin::of_rounds(spin_rounds))));
        let runtime = Runtime::builder().workers(workers).build().context("cannot start Dapple's workers")?;
        let handle = runtime.handle().clone();
        let started = dapple::start_on(runtime, run, &|index| index % workers)?;
        Ok(Steady { run, started, handle })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Callbacks so far.
    pub(crate) fn ops(&self) -> u64 {
        self.run.ops()
    }

    /// Callbacks of W1 in flight, of all colors together.
    pub(crate) fn in_flight(&self) -> u64 {
        self.run.case.in_flight * self.run.case.colors as u64
    }

    /// Stops the chains, and checks counts and order.
    ///
    /// # Errors
    /// The finding of the check.
    pub(crate) fn end(self) -> Result<(), String> {
        self.run.stop();
        let found = self.run.settle(self.started.tokens, SETTLE_LIMIT).and_then(|()| self.run.verify(true));
        // The time that a runtime takes to stop is of no interest here.
        std::mem::forget(self.started.keep);
        found
    }
}

/// The work in each callback.
pub(crate) const WORK_NS: u64 = 1_000;
