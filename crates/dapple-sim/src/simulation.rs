//! The simulation: which worker of which host goes next, and when time moves.

use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple_sched::Step;

use crate::machine::{Failure, Machine, Program, fail};
use crate::plan::{Fault, Faults, Plan, Planned, Ways};
use crate::random::Random;
use crate::settings::Settings;
use crate::timeline::Timeline;
use crate::watchdog::Watched;
use crate::world::{BadWay, Event, SharedWorld, World, lock};

/// A cluster of hosts in one thread, of which a seed decides everything.
///
/// ```
/// use dapple_sim::Simulation;
/// use dapple_sim::net::{TcpListener, TcpStream};
///
/// let mut sim = Simulation::new(7);
/// sim.host("server", || async {
///     let listener = TcpListener::bind("0.0.0.0:80").unwrap();
///     while let Ok((stream, _)) = listener.accept().await {
///         stream.write_all(b"hello").await.unwrap();
///     }
/// });
/// sim.client("client", || async {
///     let stream = TcpStream::connect("server:80").await.unwrap();
///     let mut bytes = [0; 5];
///     stream.read_exact(&mut bytes).await.unwrap();
///     assert_eq!(&bytes, b"hello");
/// });
/// let outcome = sim.run();
/// assert!(outcome.failure.is_none(), "{outcome}");
/// ```
pub struct Simulation {
    seed: u64,
    settings: Settings,
    world: SharedWorld,
    machines: Vec<Machine>,
    order: Random,
    chance: Random,
    plan: Plan,
    kept: Option<Vec<usize>>,
    /// Faults in place of the plan that the scenario makes.
    instead: Option<Plan>,
    failure: Failure,
    invariants: Vec<Box<dyn FnMut() -> Result<(), String>>>,
    workers: Option<usize>,
    steps: u64,
    /// Nothing can run, and nothing is to come.
    is_idle: bool,
    /// Workers that may make the next step. The memory is used again.
    awake: Vec<(usize, usize)>,
}

/// The end of a simulation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Why it failed.
    pub failure: Option<String>,
    /// A hash of all that has happened: two runs of a seed have the same.
    pub hash: u64,
    /// Steps of workers.
    pub steps: u64,
    /// Turns of colors and stretches of light tasks.
    pub turns: u64,
    /// How much time has passed in the simulation.
    pub time: Duration,
    /// The faults that it had.
    pub plan: Plan,
    /// The last events, where they were kept.
    pub lines: Vec<String>,
    /// See [`Outcome::write_timeline`].
    pub(crate) timeline: Option<Timeline>,
    /// The numbers of the faults that happened, if not all did.
    pub(crate) kept: Option<Vec<usize>>,
}

impl Outcome {
    /// Writes what happened as a time line, in the trace format of Chromium, which ui.perfetto.dev draws: a track for each worker of each
    /// host, the faults, and the events of the network. Empty but for the faults unless [`Simulation::timeline`] was called.
    ///
    /// ```
    /// use dapple_sim::Simulation;
    ///
    /// let mut sim = Simulation::new(1);
    /// sim.timeline();
    /// sim.client("client", || async {});
    /// let mut file = Vec::new();
    /// sim.run().write_timeline(&mut file)?;
    /// assert!(String::from_utf8_lossy(&file).contains("client"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_timeline(&self, to: impl io::Write) -> io::Result<()> {
        let none = Timeline::default();
        self.timeline.as_ref().unwrap_or(&none).write(&self.plan, self.kept.as_deref(), to)
    }

    /// [`Outcome::write_timeline`] to a new file.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub fn save_timeline(&self, file: &Path) -> io::Result<()> {
        self.write_timeline(io::BufWriter::new(File::create(file)?))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = self.failure.as_deref().unwrap_or("no failure");
        write!(f, "seed {}: {how}, after {:?} and {} steps; trace {:016x}", self.seed, self.time, self.steps, self.hash)
    }
}

impl Simulation {
    /// A simulation without hosts so far.
    pub fn new(seed: u64) -> Simulation {
        Simulation::with(seed, 0, None)
    }

    /// `lines_max`: so many of the last events are kept in words. `kept`: the numbers of the only faults of the plan that happen.
    pub(crate) fn with(seed: u64, lines_max: usize, kept: Option<Vec<usize>>) -> Simulation {
        let mut random = Random::new(seed);
        let settings = Settings::default();
        let world = World::new(random.fork(), settings.network.clone(), lines_max);
        Simulation {
            seed,
            settings,
            world: Arc::new(Mutex::new(world)),
            machines: Vec::new(),
            order: random.fork(),
            chance: random.fork(),
            plan: Plan::default(),
            kept,
            instead: None,
            failure: Failure::default(),
            invariants: Vec::new(),
            workers: None,
            steps: 0,
            is_idle: false,
            awake: Vec::new(),
        }
    }

    /// Keeps what happens for [`Outcome::write_timeline`]: the first 200,000 entries. It changes nothing else.
    pub fn timeline(&mut self) {
        let mut timeline = Timeline::default();
        self.machines.iter().for_each(|machine| timeline.host(&machine.name));
        lock(&self.world).trace.timeline = Some(timeline);
    }

    /// The seed, for scenarios that draw from it themselves.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A number of the seed that is below `end`: for the sizes of a scenario.
    ///
    /// # Panics
    /// If `end` is zero.
    pub fn pick(&mut self, end: usize) -> usize {
        assert!(end > 0, "there is nothing to pick from");
        self.chance.below(end)
    }

    /// Changes how the network and the simulation are. To be called before hosts are added.
    pub fn settings(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings);
        lock(&self.world).network = self.settings.network.clone();
    }

    /// How many workers the hosts have that are added from now on; one to three by the seed, if not set.
    pub fn workers(&mut self, workers: usize) {
        self.workers = Some(workers);
    }

    /// Adds a host that runs `program` when it starts, and again after each crash. Other hosts look it up by its name.
    ///
    /// # Panics
    /// If there is a host of that name, if there are 250, or if the name has other characters than letters, digits, `-`, `_` and `.`.
    pub fn host<F>(&mut self, name: &str, program: impl Fn() -> F + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.add(name, Rc::new(move || Box::pin(program()) as Pin<Box<_>>));
    }

    /// Adds a host as [`Simulation::host`], with a program that ends: the simulation is over when those of all clients have.
    ///
    /// # Panics
    /// As [`Simulation::host`].
    pub fn client<F>(&mut self, name: &str, program: impl Fn() -> F + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.host(name, program);
        if let Some(machine) = self.machines.last_mut() {
            machine.is_client = true;
        }
    }

    fn add(&mut self, name: &str, program: Program) {
        let is_plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
        // Plans are written with the names.
        assert!(
            !name.is_empty() && name.chars().all(is_plain),
            "{name:?} is no name of a host: letters, digits, -, _ and . make one"
        );
        let index = {
            let mut world = lock(&self.world);
            if let Some(timeline) = &mut world.trace.timeline {
                timeline.host(name);
            }
            world.add_host(name)
        };
        let workers = self.workers.unwrap_or_else(|| 1 + self.chance.below(3));
        let failure = self.failure.clone();
        self.machines.push(Machine::new(index, name, workers, program, &mut self.chance, failure));
    }

    /// A condition that must hold at any time: looked at now and then, and at the end.
    pub fn invariant(&mut self, holds: impl FnMut() -> Result<(), String> + 'static) {
        self.invariants.push(Box::new(holds));
    }

    /// Faults by chance: the seed decides which.
    pub fn faults(&mut self, faults: &Faults) {
        let plan = faults.plan(&mut self.chance);
        self.plan(plan);
    }

    /// Faults by a script.
    ///
    /// # Panics
    /// If a fault names a host that has not been added.
    pub fn plan(&mut self, plan: Plan) {
        for planned in &plan.faults {
            hosts_of(&planned.fault).into_iter().for_each(|host| _ = self.index(host));
        }
        self.plan.faults.extend(plan.faults);
    }

    /// From now on the plan is this one, whatever the scenario asks for.
    pub(crate) fn replace_plan(&mut self, plan: Plan) {
        self.instead = Some(plan);
    }

    /// Checks the hosts of a plan that comes from outside of the program.
    fn take_given_plan(&mut self) {
        let Some(plan) = self.instead.take() else { return };
        let named = plan.faults.iter().flat_map(|planned| hosts_of(&planned.fault));
        let missing = named.into_iter().find(|host| lock(&self.world).find(host).is_none());
        match missing {
            Some(host) => {
                fail(&self.failure, format!("the plan names a host {host:?}, which this scenario does not have"))
            }
            None => self.plan = plan,
        }
    }

    fn index(&self, host: &str) -> usize {
        lock(&self.world).find(host).unwrap_or_else(|| panic!("there is no host named {host:?}"))
    }

    /// Runs until the programs of all clients have ended, or something fails; without clients, until nothing is left to do. A panic, also
    /// one of an invariant or of a closure that makes a program, is a failure.
    pub fn run(mut self) -> Outcome {
        self.catching(|sim| {
            sim.take_given_plan();
            sim.schedule_plan();
            for machine in &mut sim.machines {
                if let Err(error) = machine.start(&sim.world) {
                    fail(&sim.failure, format!("{} cannot start: {error}", machine.name));
                }
            }
            let names = sim.machines.iter().map(|machine| machine.name.clone()).collect();
            let watched = Watched::new(sim.seed, names);
            while !sim.is_over() {
                sim.step(&watched);
            }
            sim.check_invariants();
        });
        self.outcome()
    }

    /// Makes a panic of `f`, which is none of a program, the failure of the simulation.
    pub(crate) fn catching(&mut self, f: impl FnOnce(&mut Simulation)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| f(self))) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no text)");
            fail(&self.failure, format!("a panic outside of all programs: {text}"));
        }
    }

    fn schedule_plan(&mut self) {
        let kept = &self.kept;
        let mut world = lock(&self.world);
        for (number, Planned { at, lasts, .. }) in self.plan.faults.iter().enumerate() {
            if kept.as_ref().is_none_or(|kept| kept.contains(&number)) {
                world.schedule(*at, Event::Fault { number, begins: true });
                world.schedule(*at + *lasts, Event::Fault { number, begins: false });
            }
        }
    }

    fn is_over(&mut self) -> bool {
        let has_clients = self.machines.iter().any(|machine| machine.is_client);
        let clients_done = self.machines.iter().all(|machine| machine.is_done || !machine.is_client);
        if has_clients && clients_done || self.is_idle || self.has_failed() {
            return true;
        }
        let now = lock(&self.world).now;
        if self.steps > self.settings.steps_max || now > self.settings.time_max {
            let left = self.clients_left();
            let left = if left.is_empty() {
                "there are no clients, and something always runs".to_owned()
            } else {
                format!("not done: {left}")
            };
            fail(&self.failure, format!("given up after {now:?} and {} steps; {left}", self.steps));
            return true;
        }
        false
    }

    /// The names of the clients with programs that have not ended.
    fn clients_left(&self) -> String {
        let left = self.machines.iter().filter(|machine| machine.is_client && !machine.is_done);
        left.map(|machine| &*machine.name).collect::<Vec<_>>().join(", ")
    }

    fn has_failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// One step of one worker; or time moves to what comes next.
    fn step(&mut self, watched: &Watched) {
        self.collect_awake();
        if self.awake.is_empty() {
            return self.jump();
        }
        let (host, worker) = self.awake[self.order.below(self.awake.len())];
        let now = {
            let mut world = lock(&self.world);
            let takes = self.order.within(&(Duration::ZERO..self.settings.step_time_max));
            world.now += takes;
            let now = world.now;
            if let Some(timeline) = &mut world.trace.timeline {
                timeline.step(host, worker, takes, now);
            }
            now
        };
        self.steps += 1;
        watched.begin(self.steps, host);
        let machine = &mut self.machines[host];
        if let Some((step, turns)) = machine.step(worker, now) {
            let kind = if step == Step::Worked { 5 } else { 6 };
            lock(&self.world).trace.note([
                kind << 32 | (host as u64) << 16 | worker as u64,
                turns,
                now.as_nanos() as u64,
            ]);
        }
        if machine.looks_done() {
            machine.is_done = true;
        }
        if self.steps.is_multiple_of(INVARIANTS_EVERY) {
            self.check_invariants();
        }
        self.do_what_is_due();
    }

    fn collect_awake(&mut self) {
        self.awake.clear();
        for machine in self.machines.iter().filter(|machine| machine.frozen == 0) {
            let Some(stepped) = &machine.stepped else { continue };
            let awake = (0..stepped.workers()).filter(|&worker| stepped.is_awake(worker));
            self.awake.extend(awake.map(|worker| (machine.index, worker)));
        }
    }

    /// Nothing can run: time moves on to the next event or timer.
    fn jump(&mut self) {
        let timers =
            self.machines.iter().filter(|machine| machine.frozen == 0).filter_map(|machine| machine.next_timer);
        let mut world = lock(&self.world);
        let Some(next) = timers.chain(world.next_event()).min() else {
            drop(world);
            let waiting = self.clients_left();
            if waiting.is_empty() {
                self.is_idle = true;
                return;
            }
            return fail(&self.failure, format!("everything waits, and nothing is to come; not done: {waiting}"));
        };
        world.now = world.now.max(next);
        drop(world);
        self.do_what_is_due();
    }

    /// Events of the network, faults and timers that are due.
    fn do_what_is_due(&mut self) {
        loop {
            let mut world = lock(&self.world);
            match world.due() {
                None => {
                    let due = |machine: &Machine| machine.next_timer.is_some_and(|at| at <= world.now);
                    let told = |machine: &Machine| !world.hosts[machine.index].told.is_empty();
                    let machines = self.machines.iter_mut();
                    return machines.filter(|machine| told(machine) || due(machine)).for_each(Machine::wake);
                }
                Some(Event::Fault { number, begins }) => {
                    drop(world);
                    self.fault(number, begins);
                }
                Some(Event::Job { host, incarnation }) => {
                    drop(world);
                    self.job(host, incarnation);
                }
                Some(Event::Syn { connection, attempt }) => world.syn(connection, attempt),
                Some(Event::Arrival { connection, side }) => world.arrival(connection, side),
                Some(Event::Window { connection, side }) => world.window(connection, side),
                Some(Event::Reset { connection, side, why }) => world.reset_arrives(connection, side, why),
                Some(Event::Datagram { host, to, from, bytes }) => world.datagram(host, to, from, bytes),
            }
        }
    }

    fn job(&mut self, host: usize, incarnation: u32) {
        if self.machines[host].frozen > 0 {
            return self.machines[host].held_jobs.push(incarnation);
        }
        let (job, now) = {
            let mut world = lock(&self.world);
            let now = world.now;
            let of = &mut world.hosts[host];
            let is_same = of.is_up && of.incarnation == incarnation;
            (if is_same { of.jobs.pop_front() } else { None }, now)
        };
        if let Some(job) = job {
            self.machines[host].run_job(job, now);
        }
    }

    fn fault(&mut self, number: usize, begins: bool) {
        let planned = self.plan.faults[number].clone();
        {
            let mut world = lock(&self.world);
            let what = if begins { "begins" } else { "ends" };
            world.line([7, number as u64, begins.into()], format_args!("fault {number} {what}: {}", planned.fault));
        }
        let hosts: Vec<usize> = hosts_of(&planned.fault).into_iter().map(|host| self.index(host)).collect();
        let first = hosts[0];
        match planned.fault {
            Fault::Crash(_) => self.crash_or_start(first, begins),
            Fault::Freeze(_) if begins => self.machines[first].frozen += 1,
            Fault::Freeze(_) => self.thaw(first),
            Fault::Cut(..) => self.cut(first, hosts[1], begins),
            Fault::Isolate(_) => (0..self.machines.len()).filter(|&other| other != first).for_each(|other| {
                self.cut(first, other, begins);
                self.cut(other, first, begins);
            }),
            Fault::Stall(..) if begins => lock(&self.world).stall(number, [first, hosts[1]]),
            Fault::Stall(..) => _ = lock(&self.world).stalls.remove(&number),
            Fault::Latency(_, latency) => self.make_worse(number, &hosts, latency, 0, begins),
            Fault::Loss(_, loss) => self.make_worse(number, &hosts, 1, loss, begins),
            Fault::Reset(_) if begins => self.reset_all(first),
            Fault::Reset(_) => {}
            Fault::WallClock(_, by) => self.machines[first].shift_wall(by, begins),
            Fault::WallClockBack(_, by) => self.machines[first].shift_wall(by, !begins),
            Fault::Drift(_, rate) => {
                let now = lock(&self.world).now;
                self.machines[first].drift(if begins { i64::from(rate) } else { -i64::from(rate) }, now);
            }
            Fault::Disk(_, how) => {
                let faults = &mut lock(&self.world).hosts[first].disk.faults;
                faults.retain(|(fault, _)| *fault != number);
                if begins {
                    faults.push((number, how));
                }
            }
            Fault::Names(_, how) => {
                let names = &mut lock(&self.world).hosts[first].names;
                names.retain(|(fault, _)| *fault != number);
                if begins {
                    names.push((number, how));
                }
            }
        }
    }

    /// After the last of the faults that froze a host, functions of its blocking pool run that were to run meanwhile.
    fn thaw(&mut self, host: usize) {
        let machine = &mut self.machines[host];
        machine.frozen -= 1;
        if machine.frozen == 0 {
            for incarnation in machine.held_jobs.drain(..) {
                lock(&self.world).schedule_in(Duration::ZERO, Event::Job { host, incarnation });
            }
        }
    }

    /// Two crashes of one host may overlap: the end of the first starts it, that of the second finds it up.
    fn crash_or_start(&mut self, host: usize, begins: bool) {
        let machine = &mut self.machines[host];
        match (begins, machine.stepped.is_some()) {
            (true, true) => machine.crash(&self.world),
            (false, false) if !machine.is_done || !machine.is_client => {
                if let Err(error) = machine.start(&self.world) {
                    fail(&self.failure, format!("{} cannot start again: {error}", machine.name));
                }
            }
            _ => {}
        }
    }

    fn cut(&mut self, from: usize, to: usize, begins: bool) {
        let mut world = lock(&self.world);
        let count = world.cuts.entry((from, to)).or_default();
        *count = if begins { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            world.cuts.remove(&(from, to));
        }
    }

    fn make_worse(&mut self, number: usize, hosts: &[usize], latency: u32, loss: u32, begins: bool) {
        let ways = &mut lock(&self.world).bad_ways;
        if begins {
            ways.insert(number, BadWay { between: (hosts[0], hosts.get(1).copied()), latency, loss });
        } else {
            ways.remove(&number);
        }
    }

    fn reset_all(&mut self, host: usize) {
        let mut world = lock(&self.world);
        let numbers: Vec<u64> = world
            .connections
            .iter()
            .filter(|(_, connection)| connection.sides.iter().any(|side| side.host == host))
            .map(|(number, _)| *number)
            .collect();
        numbers.into_iter().for_each(|number| world.reset_by(number, host));
    }

    fn check_invariants(&mut self) {
        for invariant in &mut self.invariants {
            if let Err(why) = invariant() {
                fail(&self.failure, format!("an invariant does not hold: {why}"));
            }
        }
    }

    fn outcome(self) -> Outcome {
        let turns = |machine: &Machine| {
            let stepped = machine.stepped.as_ref();
            stepped.map_or(0, |stepped| (0..stepped.workers()).map(|worker| stepped.turns(worker)).sum())
        };
        let turns = self.machines.iter().map(turns).sum();
        let mut world = lock(&self.world);
        let timeline = world.trace.timeline.take();
        Outcome {
            seed: self.seed,
            failure: self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            hash: world.trace.hash(),
            steps: self.steps,
            turns,
            time: world.now,
            plan: self.plan.clone(),
            lines: world.trace.lines().map(str::to_owned).collect(),
            timeline,
            kept: self.kept.clone(),
        }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("seed", &self.seed)
            .field("hosts", &self.machines.len())
            .finish_non_exhaustive()
    }
}

fn hosts_of(fault: &Fault) -> Vec<&str> {
    match fault {
        Fault::Crash(host) | Fault::Freeze(host) | Fault::Isolate(host) | Fault::Reset(host) => vec![host],
        Fault::WallClockBack(host, _) | Fault::Drift(host, _) => vec![host],
        Fault::WallClock(host, _) | Fault::Names(host, _) | Fault::Disk(host, _) => vec![host],
        Fault::Latency(Ways::Of(host), _) | Fault::Loss(Ways::Of(host), _) => vec![host],
        Fault::Latency(Ways::From(from, to), _) | Fault::Loss(Ways::From(from, to), _) => vec![from, to],
        Fault::Cut(one, other) | Fault::Stall(one, other) => vec![one, other],
    }
}

/// Invariants are looked at every so many steps.
const INVARIANTS_EVERY: u64 = 64;
