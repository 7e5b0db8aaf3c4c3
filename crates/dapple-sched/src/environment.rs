//! Time and randomness: from the kernel, or on a simulating thread from the simulation.
//!
//! The crates of Dapple read clocks and take random numbers from here only, so that a simulation
//! decides both. On an ordinary thread each function is that of the standard library, after one
//! test of a thread-local word. A simulation runs its program inside [`Simulated::around`]; none of
//! these functions is called through a pointer, and threads share nothing here. With the feature
//! `simulated-std`, `std::time::Instant::now` shows the simulation's time as well, and threads,
//! `sleep`, sockets, pipes and look-ups of names of the standard library are refused.
//!
//! ```
//! use dapple_sched::environment::{self, Simulated};
//! use std::time::{Duration, SystemTime};
//!
//! let mut world = Simulated::new(SystemTime::UNIX_EPOCH, 7);
//! let (first, second) = world.around(|| (environment::now(), environment::now()));
//! assert_eq!(first, second, "time stands until the simulation moves it");
//! world.advance(Duration::from_secs(3600));
//! assert_eq!(world.around(environment::now) - first, Duration::from_secs(3600));
//! ```

#[cfg(all(
    feature = "simulated-std",
    target_os = "linux",
    target_env = "gnu",
    not(any(target_feature = "crt-static", miri, dapple_loom, dapple_shuttle))
))]
mod libc_calls;

use std::cell::Cell;
use std::collections::{self, hash_map};
use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::Handle;

/// Now, by the monotonic clock of this thread's environment. Cost outside of a simulation: that of [`Instant::now`].
///
/// ```
/// let earlier = dapple_sched::environment::now();
/// assert!(dapple_sched::environment::now() >= earlier);
/// ```
#[inline]
pub fn now() -> Instant {
    THREAD.with(|thread| thread.now.get()).unwrap_or_else(Instant::now)
}

/// Now, by the wall clock of this thread's environment. Cost outside of a simulation: that of [`SystemTime::now`].
///
/// ```
/// assert!(dapple_sched::environment::system_now() > std::time::SystemTime::UNIX_EPOCH);
/// ```
#[inline]
pub fn system_now() -> SystemTime {
    THREAD.with(|thread| thread.wall.get()).unwrap_or_else(SystemTime::now)
}

/// An unpredictable number; in a simulation the next one of its seed. Not for keys and other secrets.
///
/// ```
/// assert_ne!(dapple_sched::environment::random(), dapple_sched::environment::random());
/// ```
pub fn random() -> u64 {
    match is_simulated() {
        true => THREAD.with(|thread| next_random(&thread.random)),
        // Keys of the standard library's maps: the kernel's random numbers, asked for once by each thread.
        false => hash_map::RandomState::new().build_hasher().finish(),
    }
}

/// The point of time from which the clocks of this process count: ticks and milliseconds begin here, in each simulation too. It is the
/// same for the whole process, and every [`Simulated`] begins at it: so all runs of a seed are rounded in the same way.
#[inline]
pub fn start() -> Instant {
    // REAL: points of time are compared with this one, and nothing depends on when it is.
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START
}

/// The number of processors that the program may use, as [`std::thread::available_parallelism`] finds it; at least 1. In a simulation the
/// number of workers of the current runtime, or 1 outside of any: for defaults that would make the trace of a seed depend on the machine.
///
/// ```
/// assert!(dapple_sched::environment::parallelism() >= 1);
/// ```
pub fn parallelism() -> usize {
    match is_simulated() {
        true => Handle::of_thread().map_or(1, |runtime| runtime.workers()),
        false => thread::available_parallelism().map_or(1, usize::from),
    }
}

/// The reason why a simulation has refused something to the standard library on this thread; `None` if it has not since the last call. Only
/// with the feature `simulated-std`.
///
/// ```
/// assert_eq!(dapple_sched::environment::take_refusal(), None);
/// ```
pub fn take_refusal() -> Option<&'static str> {
    REFUSED.take()
}

/// Whether a simulation runs on this thread.
#[inline]
pub fn is_simulated() -> bool {
    THREAD.with(|thread| thread.now.get().is_some())
}

/// Now, for the scheduler's measurements. In a simulation it runs a little ahead of [`now`], by a
/// number from the seed: so turns take time and are cut off, while the time that programs see stays
/// the same.
#[inline]
pub(crate) fn measured_now() -> Instant {
    THREAD.with(|thread| thread.now.get().map(|now| now + thread.drift())).unwrap_or_else(Instant::now)
}

/// The keys of hash maps: random ones, or in a simulation those of the seed, so that iteration has
/// the same order.
///
/// In place of [`std::collections::hash_map::RandomState`], at the same cost; [`HashMap`] and [`HashSet`] have it.
///
/// ```
/// use dapple_sched::environment::HashMap;
///
/// let mut map: HashMap<u32, &str> = HashMap::default();
/// map.insert(1, "one");
/// assert_eq!(map[&1], "one");
/// ```
#[derive(Clone, Debug)]
pub struct RandomState(Keys);

/// A map of the standard library that a simulation walks through in the same order each time. Make it by `default()`.
///
/// Not for statics: a map that is made once for the process would take its keys from the seed that comes first.
pub type HashMap<K, V> = collections::HashMap<K, V, RandomState>;

/// A set of the standard library that a simulation walks through in the same order each time. See [`HashMap`].
pub type HashSet<T> = collections::HashSet<T, RandomState>;

#[derive(Clone, Debug)]
enum Keys {
    Random(hash_map::RandomState),
    Seeded(u64),
}

impl Default for RandomState {
    fn default() -> RandomState {
        RandomState(match is_simulated() {
            true => Keys::Seeded(random()),
            false => Keys::Random(hash_map::RandomState::new()),
        })
    }
}

impl BuildHasher for RandomState {
    type Hasher = hash_map::DefaultHasher;

    #[inline]
    fn build_hasher(&self) -> hash_map::DefaultHasher {
        match &self.0 {
            Keys::Random(keys) => keys.build_hasher(),
            Keys::Seeded(key) => {
                let mut hasher = hash_map::DefaultHasher::new();
                hasher.write_u64(*key);
                hasher
            }
        }
    }
}

/// Time and randomness of a simulation, for the code that it surrounds. A simulation of several machines has one for each, so that
/// their clocks may differ.
#[derive(Clone, Debug)]
pub struct Simulated {
    now: Instant,
    wall: SystemTime,
    random: u64,
    measured_ns: u64,
    noise_ns: u64,
}

impl Simulated {
    /// A monotonic clock that stands at [`start`], a wall clock that stands at `wall`, and random numbers of this seed.
    pub fn new(wall: SystemTime, seed: u64) -> Simulated {
        Simulated { now: start(), wall, random: seed, measured_ns: 0, noise_ns: 0 }
    }

    /// How much longer than the last one each measurement of the scheduler takes: random times,
    /// half of which are shorter than this. Default: zero, so that no callback seems to take any
    /// time.
    pub fn set_noise(&mut self, noise: Duration) {
        self.noise_ns = u64::try_from(noise.as_nanos()).unwrap_or(u64::MAX / 64).min(u64::MAX / 64);
    }

    /// Lets both clocks run.
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
        self.wall += by;
    }

    /// Sets the wall clock, forward or backward.
    pub fn set_wall(&mut self, wall: SystemTime) {
        self.wall = wall;
    }

    /// The time of the monotonic clock.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The time of the wall clock.
    pub fn wall(&self) -> SystemTime {
        self.wall
    }

    /// Runs `f` in this environment, on this thread. May be nested: the innermost one counts.
    ///
    /// # Panics
    /// As `f` does; after the panic, the previous environment is in force again.
    pub fn around<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let within = Within { before: THREAD.with(|thread| thread.swap(self.clone().into())), of: self };
        let done = f();
        drop(within);
        done
    }
}

/// The environment is in force until this is dropped.
struct Within<'a> {
    before: Values,
    of: &'a mut Simulated,
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        let after = THREAD.with(|thread| thread.swap(self.before));
        (self.of.random, self.of.measured_ns) = (after.random, after.measured_ns);
    }
}

/// The environment of a thread; empty means the kernel.
#[derive(Clone, Copy, Default)]
struct Values {
    now: Option<Instant>,
    wall: Option<SystemTime>,
    random: u64,
    measured_ns: u64,
    noise_ns: u64,
}

impl From<Simulated> for Values {
    fn from(of: Simulated) -> Values {
        Values {
            now: Some(of.now),
            wall: Some(of.wall),
            random: of.random,
            measured_ns: of.measured_ns,
            noise_ns: of.noise_ns,
        }
    }
}

struct Thread {
    now: Cell<Option<Instant>>,
    wall: Cell<Option<SystemTime>>,
    random: Cell<u64>,
    measured_ns: Cell<u64>,
    noise_ns: Cell<u64>,
}

impl Thread {
    fn swap(&self, new: Values) -> Values {
        Values {
            now: self.now.replace(new.now),
            wall: self.wall.replace(new.wall),
            random: self.random.replace(new.random),
            measured_ns: self.measured_ns.replace(new.measured_ns),
            noise_ns: self.noise_ns.replace(new.noise_ns),
        }
    }

    /// By how much measurements are ahead now; grows with each.
    fn drift(&self) -> Duration {
        let noise = self.noise_ns.get();
        if noise > 0 {
            let random = next_random(&self.random);
            // Half of these times are below `noise`, a quarter up to twice that, and so on, up to
            // 64 times `noise`.
            let spread = noise << (random >> 32).trailing_ones().min(6);
            self.measured_ns.set(self.measured_ns.get() + (random & 0xffff_ffff) * (spread >> 16) / (1 << 16) + 1);
        }
        Duration::from_nanos(self.measured_ns.get())
    }
}

/// splitmix64: any seed will do, and each number comes once.
fn next_random(state: &Cell<u64>) -> u64 {
    let seed = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    state.set(seed);
    let mut mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

thread_local! {
    static REFUSED: Cell<Option<&'static str>> = const { Cell::new(None) };
    static THREAD: Thread = const {
        Thread {
            now: Cell::new(None),
            wall: Cell::new(None),
            random: Cell::new(0),
            measured_ns: Cell::new(0),
            noise_ns: Cell::new(0),
        }
    };
}

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use super::*;

    fn world(seed: u64) -> Simulated {
        Simulated::new(SystemTime::UNIX_EPOCH, seed)
    }

    #[test]
    fn a_seed_decides_numbers_and_the_order_of_maps() {
        let run = |seed| {
            world(seed).around(|| {
                let map: HashMap<u64, u64> = (0..100).map(|key| (key, random())).collect();
                map.into_iter().collect::<Vec<_>>()
            })
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn what_is_outside_has_the_clock_of_the_kernel_again() {
        let mut outer = world(1);
        let start = outer.now();
        outer.advance(Duration::from_secs(1_000_000));
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| outer.around(|| panic!("inside"))));
        assert!(caught.is_err() && !is_simulated());
        assert!(now() < start + Duration::from_secs(1_000_000) && system_now() > SystemTime::UNIX_EPOCH);
    }

    #[test]
    fn measurements_move_on_and_time_stands() {
        let mut world = world(3);
        world.set_noise(Duration::from_micros(1));
        let first = world.around(measured_now);
        let second = world.around(|| (measured_now(), now()));
        assert!(second.0 > first && first > second.1);
        assert_eq!(second.1, world.now());
    }

    #[test]
    fn a_simulation_has_as_many_processors_as_workers() {
        let of_machine = parallelism();
        let inside = world(5).around(|| {
            let runtime = crate::Runtime::builder().workers(of_machine + 1).build_stepped(1).unwrap();
            let without = parallelism();
            let _entered = runtime.handle().enter();
            (without, parallelism())
        });
        assert_eq!(inside, (1, of_machine + 1));
        assert_eq!(of_machine, thread::available_parallelism().map_or(1, usize::from));
    }

    #[test]
    fn each_simulation_begins_at_the_start_of_the_process() {
        let mut world = world(4);
        world.advance(Duration::from_secs(3));
        assert_eq!(world.around(now) - start(), Duration::from_secs(3));
        assert_eq!(start(), start());
    }
}
