//! Child processes that tests start and kill: this binary again, with a role in its environment.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything should take on a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// A process, which is killed when this is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Runs the test of that name in a new process.
    pub(crate) fn start<'a>(test: &str, environment: impl IntoIterator<Item = (&'a str, &'a OsStr)>) -> Process {
        let child = command(test).envs(environment).stdout(Stdio::null()).spawn().unwrap();
        Process(child)
    }
}

/// The command for such a process. It ends when its standard input is closed, if it calls
/// [`end_with_parent`].
pub(crate) fn command(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).stdin(Stdio::piped());
    command
}

impl Drop for Process {
    fn drop(&mut self) {
        let _already_over = self.0.kill();
        let _status = self.0.wait();
    }
}

/// In such a process: ends it when its parent is gone.
pub(crate) fn end_with_parent() {
    thread::spawn(|| {
        let _end = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
}

pub(crate) fn wait_until(mut condition: impl FnMut() -> bool, what: impl Fn() -> String) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "{}", what());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Numbers from a seed (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// With a seed that is printed, and that `DAPPLE_TEST_SEED` sets.
    pub(crate) fn seeded() -> Random {
        let asked = std::env::var("DAPPLE_TEST_SEED").ok().map(|seed| seed.parse().expect("a number"));
        let seed = asked.unwrap_or_else(|| std::process::id().into());
        println!("DAPPLE_TEST_SEED={seed}");
        Random(seed)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}
