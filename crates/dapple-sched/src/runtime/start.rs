//! Building a runtime, and starting its threads.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use crate::observe::trace::Watch;
use crate::runtime::context::WorkerScope;
use crate::runtime::cpus::{self, Cpus};
use crate::runtime::driver::ThreadDriver;
use crate::runtime::shared::{Setup, Shared};
use crate::runtime::thread_context::work;
use crate::runtime::{Builder, Handle, Run, Runtime, fork, running};
use crate::worker::{Worker, monitor};

impl Builder {
    /// Starts the workers.
    ///
    /// # Errors
    /// If a setting is out of its range, the driver cannot be made, or a thread cannot be started.
    pub fn build(self) -> io::Result<Runtime> {
        self.build_by(|thread, run| thread.spawn(run)).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => error,
            kind => io::Error::new(kind, format!("{error}; {ADVICE}")),
        })
    }

    /// As [`Builder::build`], where `start` starts threads.
    pub(super) fn build_by(
        self,
        start: impl Fn(thread::Builder, Run) -> io::Result<thread::JoinHandle<()>>,
    ) -> io::Result<Runtime> {
        let (policy, name) = (self.policy.clone(), self.thread_name.clone());
        let shared = self.into_shared(false)?;
        let workers = shared.slots.len();
        let mut runtime = Runtime { handle: Handle { shared: shared.clone() }, threads: Vec::with_capacity(workers) };
        for index in 0..workers {
            let (shared, policy) = (shared.clone(), policy.clone());
            let thread = thread::Builder::new().name(format!("{name}-{index}"));
            match start(thread, Box::new(move || work(shared, index, policy))) {
                Ok(thread) => runtime.threads.push(thread),
                Err(error) => return Err(runtime.undo(index..workers, error)),
            }
        }
        let (weak, timer) = (Arc::downgrade(&shared), shared.alarm.timer());
        let thread = thread::Builder::new().name(format!("{name}-monitor"));
        if let Err(error) = start(thread, Box::new(move || monitor::run(weak, timer))) {
            return Err(runtime.undo(workers..workers, error));
        }
        running().push(Arc::downgrade(&shared));
        Ok(runtime)
    }

    /// The shared data of the workers, before they start.
    pub(super) fn into_shared(self, is_stepped: bool) -> io::Result<Arc<Shared>> {
        let asked = cpus::asked(self.workers)?;
        let workers = self.worker_count()?;
        let tuning = self.tuning.check()?;
        fork::watch();
        let thread_context = self.thread_context.map(|make| make()).transpose()?;
        let driver = match self.driver {
            Some(make) => make(workers)?,
            None => Arc::new(ThreadDriver::new(workers)),
        };
        if driver.is_stepped() && !is_stepped {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, NEEDS_STEPS));
        }
        let watch = Watch::new(self.observer, self.measure_times);
        let follows = self.follow_cpus.unwrap_or(asked.is_none()) && workers > 1 && !is_stepped;
        let cpus = follows.then(|| Cpus::new(cpus::available(&self.system_root).min(workers), self.system_root));
        let setup = Setup { tuning, cpus, policed: self.policy.is_some(), thread_context, is_stepped };
        Shared::new(workers, driver, self.panic_handler, self.slow_rule, watch, setup)
    }
}

impl Runtime {
    /// Ends a runtime of which a thread could not be started: `missing` are the workers without one.
    fn undo(mut self, missing: Range<usize>, error: io::Error) -> io::Error {
        let shared = &self.handle.shared;
        shared.stop();
        for index in missing {
            // This thread does the missing worker's work at the end, because the last of all
            // workers shuts the driver down.
            let worker = Worker::new(shared.clone(), index);
            let _scope = WorkerScope::enter(&worker);
            worker.exit();
        }
        for thread in self.threads.drain(..) {
            // The panic hook has reported a worker's panic.
            let _ = thread.join();
        }
        io::Error::new(error.kind(), format!("a thread of the runtime cannot be started: {error}"))
    }
}

const NEEDS_STEPS: &str = "this driver is that of a simulation, which steps the workers itself: use `build_stepped`";

const ADVICE: &str = "a limit on threads or on open files may be too low (see `ulimit -a`)";
