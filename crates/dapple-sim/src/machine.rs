//! One host: a whole runtime, its clocks, and the program that it starts with.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use dapple_io::EpollDriver;
use dapple_sched::environment::{Simulated, start, take_refusal};
use dapple_sched::{JoinHandle, SeededRandom, Step, Stepped};

use crate::network::sockets::Kernel;
use crate::random::Random;
use crate::world::{SharedWorld, World, lock};

/// The future that a host runs when it starts.
pub(crate) type Program = Rc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>>>;

/// Why a simulation has failed, from the first panic on.
pub(crate) type Failure = Arc<Mutex<Option<String>>>;

/// See the module's text.
pub(crate) struct Machine {
    pub(crate) index: usize,
    pub(crate) name: String,
    /// The simulation is over when all of these have ended.
    pub(crate) is_client: bool,
    pub(crate) is_done: bool,
    pub(crate) frozen: u32,
    /// For each function of the blocking pool that waits until the host thaws, the start of the host that it belongs to.
    pub(crate) held_jobs: Vec<u32>,
    /// When the first timer is due.
    pub(crate) next_timer: Option<Duration>,
    pub(crate) stepped: Option<Stepped>,
    workers: usize,
    /// While one worker is awake, others wake for no reason now and then. Not while all sleep: that would hide a wake-up that was lost.
    is_restless: bool,
    program: Program,
    main: Option<JoinHandle<()>>,
    clocks: Simulated,
    /// The time of its clocks.
    synced_at: Duration,
    /// How many microseconds a second its clocks gain, and since when: a time of the simulation, and the same of its clocks.
    drift: i64,
    drift_since: (Duration, Duration),
    random: Random,
    failure: Failure,
}

impl Machine {
    pub(crate) fn new(
        index: usize,
        name: &str,
        workers: usize,
        program: Program,
        random: &mut Random,
        failure: Failure,
    ) -> Machine {
        let mut random = random.fork();
        let mut clocks = Simulated::new(SystemTime::UNIX_EPOCH + WALL_START, random.next());
        // Some machines measure nothing; on the others turns take time, so that they are cut short and shared.
        clocks.set_noise(Duration::from_nanos([0, 1_000, 20_000, 200_000][random.below(4)]));
        let is_restless = random.below(2) == 0;
        Machine {
            index,
            name: name.to_owned(),
            is_client: false,
            is_done: false,
            frozen: 0,
            held_jobs: Vec::new(),
            next_timer: None,
            stepped: None,
            workers,
            is_restless,
            program,
            main: None,
            clocks,
            synced_at: Duration::ZERO,
            drift: 0,
            drift_since: (Duration::ZERO, Duration::ZERO),
            random,
            failure,
        }
    }

    /// Starts the host, at first or after a crash.
    pub(crate) fn start(&mut self, world: &SharedWorld) -> io::Result<()> {
        let (now, incarnation) = {
            let mut world = lock(world);
            let now = world.now;
            let host = &mut world.hosts[self.index];
            host.incarnation += 1;
            host.is_up = true;
            (now, host.incarnation)
        };
        self.sync(now);
        let kernel = Arc::new(Kernel { world: world.clone(), host: self.index, incarnation });
        let (seed, policed, failure) = (self.random.next(), self.random.below(2) == 0, self.failure.clone());
        let (workers, program, name) = (self.workers, self.program.clone(), self.name.clone());
        let (stepped, main) = self.clocks.around(|| {
            let mut builder = dapple_io::runtime_builder_in(kernel).workers(workers).panic_handler(move |panic| {
                let message = take_refusal().unwrap_or(panic.message);
                fail(&failure, format!("a callback of {name} panicked: {message}"));
            });
            if policed {
                builder = builder.policy(move |worker| Box::new(SeededRandom::new(seed + worker as u64)));
            }
            let stepped = builder.build_stepped(seed)?;
            let main = {
                let _entered = stepped.handle().enter();
                stepped.handle().spawn(program())
            };
            io::Result::Ok((stepped, main))
        })?;
        (self.stepped, self.main) = (Some(stepped), Some(main));
        Ok(())
    }

    /// All that is in memory is gone. Destructors run, as memory has to be freed, but the host's network and disks are gone before.
    pub(crate) fn crash(&mut self, world: &SharedWorld) {
        let (told, jobs, ports) = {
            let mut world = lock(world);
            let index = self.index;
            let sides: Vec<(u64, usize)> = world
                .connections
                .iter()
                .flat_map(|(number, connection)| (0..2).map(move |side| (*number, side, connection)))
                .filter(|(_, side, connection)| connection.sides[*side].host == index)
                .map(|(number, side, _)| (number, side))
                .collect();
            world.hosts[index].is_up = false;
            world.hosts[index].line_free = world.now;
            sides.into_iter().for_each(|(number, side)| world.forget_side(number, side));
            let World { hosts, random, .. } = &mut *world;
            let host = &mut hosts[index];
            host.disk.crash(random);
            let ports = (std::mem::take(&mut host.listeners), std::mem::take(&mut host.datagrams));
            (std::mem::take(&mut host.told), std::mem::take(&mut host.jobs), ports)
        };
        self.next_timer = None;
        let (stepped, main) = (self.stepped.take(), self.main.take());
        // A panic of a destructor is that of a process which is gone.
        let silenced = self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.clocks.around(|| drop((main, stepped, told, jobs, ports)));
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = silenced;
    }

    fn sync(&mut self, now: Duration) {
        let (since, clock_since) = self.drift_since;
        let clock = clock_since + scaled(now - since, self.rate(), MILLION).0;
        self.clocks.advance(clock - self.synced_at);
        self.synced_at = clock;
    }

    /// How many microseconds its clocks go in a second. They never stand.
    fn rate(&self) -> u64 {
        MILLION.saturating_add_signed(self.drift).max(1)
    }

    /// Lets the clocks gain so much more from now on.
    pub(crate) fn drift(&mut self, more: i64, now: Duration) {
        self.sync(now);
        self.drift += more;
        self.drift_since = (now, self.synced_at);
        self.look_at_timers();
    }

    /// Lets the wall clock jump.
    pub(crate) fn shift_wall(&mut self, by: Duration, forward: bool) {
        let wall = self.clocks.wall();
        self.clocks.set_wall(if forward { wall + by } else { wall - by });
    }

    /// Steps one worker.
    pub(crate) fn step(&mut self, worker: usize, now: Duration) -> Option<(Step, u64)> {
        self.sync(now);
        let stepped = self.stepped.as_mut()?;
        let step = self.clocks.around(|| stepped.step(worker));
        if self.is_restless && step == Step::Worked && self.random.below(64) == 0 {
            stepped.wake(self.random.below(self.workers));
        }
        let turns = stepped.turns(worker);
        self.look_at_refusals();
        self.look_at_timers();
        Some((step, turns))
    }

    fn look_at_timers(&mut self) {
        let driver = self.stepped.as_ref().and_then(|stepped| stepped.handle().driver::<EpollDriver>());
        let next = driver.and_then(EpollDriver::next_timer);
        let (since, clock_since) = self.drift_since;
        self.next_timer = next.map(|at| {
            let left = at.saturating_duration_since(start()).saturating_sub(clock_since);
            let (time, is_cut) = scaled(left, MILLION, self.rate());
            // Not before the clocks show it.
            since.saturating_add(time + Duration::from_nanos(is_cut.into()))
        });
    }

    /// Wakes a worker of the seed's choice, if none is awake.
    pub(crate) fn wake(&mut self) {
        let Some(stepped) = &mut self.stepped else { return };
        let workers = stepped.workers();
        if !(0..workers).any(|worker| stepped.is_awake(worker)) {
            stepped.wake(self.random.below(workers));
        }
    }

    /// Runs a function of the blocking pool.
    pub(crate) fn run_job(&mut self, job: impl FnOnce(), now: Duration) {
        self.sync(now);
        let Some(stepped) = &self.stepped else { return };
        let handle = stepped.handle().clone();
        self.clocks.around(|| {
            let _entered = handle.enter();
            job();
        });
        self.look_at_refusals();
    }

    /// A program may have caught the panic that follows a refusal.
    fn look_at_refusals(&self) {
        if let Some(refusal) = take_refusal() {
            fail(&self.failure, format!("{}: {refusal}", self.name));
        }
    }

    /// Whether the program has ended by now; a panic of it fails the simulation.
    pub(crate) fn looks_done(&mut self) -> bool {
        let Some(main) = self.main.as_mut().filter(|main| main.is_finished()) else { return false };
        let polled = self.clocks.around(|| Pin::new(main).poll(&mut Context::from_waker(Waker::noop())));
        self.main = None;
        if let Poll::Ready(Err(error)) = polled {
            fail(&self.failure, format!("the program of {} failed: {error}", self.name));
        }
        true
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let (stepped, main) = (self.stepped.take(), self.main.take());
        self.clocks.around(|| drop((main, stepped)));
    }
}

/// Keeps the first failure.
pub(crate) fn fail(failure: &Failure, why: String) {
    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
}

/// So many times this time, divided by that, and whether a part of a nanosecond was cut off.
fn scaled(time: Duration, times: u64, by: u64) -> (Duration, bool) {
    if times == by {
        return (time, false);
    }
    let (product, by) = (time.as_nanos().saturating_mul(times.into()), u128::from(by));
    let nanos = u64::try_from(product / by).unwrap_or(u64::MAX - 1);
    (Duration::from_nanos(nanos), !product.is_multiple_of(by))
}

const MILLION: u64 = 1_000_000;

/// The wall clocks begin at 2030-01-01.
const WALL_START: Duration = Duration::from_secs(1_893_456_000);
