//! `dapple store bench`: the speed of a store on this machine, with a check of all that it wrote.

use std::time::{Duration, Instant};

use bytes::Bytes;
use dapple::Color;
use dapple::store::Error;
use serde::Serialize;

use super::args::BenchArgs;
use super::commands::{Done, print};
use super::error::CommandError;
use super::{TextTable, open};

/// The work of all callers of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Work {
    /// Reads random keys and compares the values.
    Get,
    /// Puts new values of random keys.
    Put,
}

/// The figures of one phase.
#[derive(Debug, Serialize)]
struct Figures {
    work: Work,
    callers: usize,
    operations: u64,
    per_second: f64,
    p50_us: u64,
    p99_us: u64,
}

/// A caller and its keys.
struct Caller {
    table: TextTable,
    /// The number of writes so far of each of its keys.
    writes: Vec<u64>,
    place: Place,
}

/// The keys of a caller: every `of`-th one from `first` on.
#[derive(Clone, Copy)]
struct Place {
    first: u64,
    of: u64,
    value_len: usize,
}

const TABLE: &str = "dapple-bench";

/// Creates a table, measures, checks all keys, and removes the table.
pub(super) async fn run(args: &BenchArgs) -> Done {
    let store = open(&args.store, true).await?;
    // A table that is there already is an error: it may not be of a bench.
    let table: TextTable = store.create_ordered(TABLE, Default::default()).await?;
    let measured = measure(args, &table).await;
    store.destroy(TABLE).await?;
    for figures in measured? {
        let Figures { work, callers, per_second, p50_us, p99_us, .. } = &figures;
        let name = format!("{work:?}").to_lowercase();
        let plural = if *callers == 1 { "" } else { "s" };
        let text = format!(
            "{name}, {callers} caller{plural}: {per_second:.0} a second, p50 {p50_us} us, p99 {p99_us} us; all values are right"
        );
        print(&args.store, &text, &serde_json::to_value(&figures).unwrap_or_default())?;
    }
    Ok(())
}

async fn measure(args: &BenchArgs, table: &TextTable) -> Result<Vec<Figures>, CommandError> {
    let mut all = Vec::new();
    for callers in &args.callers {
        let of = u64::from(*callers);
        // Each caller has keys of its own, so that it knows what they hold.
        let keys = args.keys.div_ceil(of);
        let place = |first| Place { first, of, value_len: args.value_len as usize };
        let mut state: Vec<Caller> = (0..of)
            .map(|first| Caller { table: table.clone(), writes: vec![0; keys as usize], place: place(first) })
            .collect();
        fill(&mut state).await?;
        for work in [Work::Put, Work::Get] {
            let (next, figures) = phase(state, work, Duration::from_secs_f64(args.secs)).await?;
            state = next;
            all.push(figures);
        }
        check(&state).await?;
    }
    Ok(all)
}

/// Gives all keys their first values, as many at a time as a commit takes.
async fn fill(state: &mut [Caller]) -> Result<(), CommandError> {
    const AT_ONCE: usize = 500;
    for caller in state {
        let all: Vec<(Bytes, Bytes)> =
            (0..caller.writes.len()).map(|at| (caller.place.key(at), caller.place.value(at, 1))).collect();
        caller.writes.fill(1);
        for page in all.chunks(AT_ONCE) {
            put_all(&caller.table, page).await?;
        }
    }
    Ok(())
}

/// Puts entries of different keys at the same time.
async fn put_all(table: &TextTable, page: &[(Bytes, Bytes)]) -> Result<(), Error> {
    let put = |(key, value): &(Bytes, Bytes)| {
        let (table, key, value) = (table.clone(), key.clone(), value.clone());
        Color::new().spawn(async move { table.put(&key, &value).await.map(drop) })
    };
    let puts: Vec<_> = page.iter().map(put).collect();
    let mut result = Ok(());
    for put in puts {
        match put.await {
            Ok(done) => result = result.and(done),
            Err(error) => std::panic::resume_unwind(Box::new(error.to_string())),
        }
    }
    result
}

async fn phase(state: Vec<Caller>, work: Work, length: Duration) -> Result<(Vec<Caller>, Figures), CommandError> {
    let callers = state.len();
    let begin = Instant::now();
    let tasks: Vec<_> = state
        .into_iter()
        .enumerate()
        .map(|(seed, mut caller)| {
            Color::new().spawn(async move {
                let times = caller.run(work, begin + length, seed as u64).await;
                times.map(|times| (caller, times))
            })
        })
        .collect();
    let (mut next, mut times) = (Vec::new(), Vec::new());
    for task in tasks {
        let ended = task.await.unwrap_or_else(|error| std::panic::resume_unwind(Box::new(error.to_string())));
        let (caller, of_caller) = ended?;
        next.push(caller);
        times.extend(of_caller);
    }
    let elapsed = begin.elapsed().as_secs_f64();
    times.sort_unstable();
    let quantile = |part: usize| times.get(times.len() * part / 100).copied().map_or(0, u64::from);
    let operations = times.len() as u64;
    let per_second = operations as f64 / elapsed;
    Ok((next, Figures { work, callers, operations, per_second, p50_us: quantile(50), p99_us: quantile(99) }))
}

/// Reads every key once.
async fn check(state: &[Caller]) -> Result<(), CommandError> {
    for caller in state {
        for at in 0..caller.writes.len() {
            caller.compare(at).await?;
        }
    }
    Ok(())
}

impl Caller {
    /// Works until `end` and returns the microseconds of each operation.
    async fn run(&mut self, work: Work, end: Instant, seed: u64) -> Result<Vec<u32>, CommandError> {
        let (mut times, mut random) = (Vec::new(), seed + 1);
        while Instant::now() < end {
            let at = (next(&mut random) % self.writes.len() as u64) as usize;
            let begin = Instant::now();
            match work {
                Work::Get => self.compare(at).await?,
                Work::Put => {
                    self.writes[at] += 1;
                    let value = self.place.value(at, self.writes[at]);
                    let put = self.table.put(&self.place.key(at), &value).await?;
                    let before = put.previous.map(|old| old.value);
                    if before != Some(self.place.value(at, self.writes[at] - 1)) {
                        return Err(self.place.wrong(at));
                    }
                }
            }
            times.push(u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
        Ok(times)
    }

    async fn compare(&self, at: usize) -> Result<(), CommandError> {
        let found = self.table.get(&self.place.key(at)).await?;
        if found == Some(self.place.value(at, self.writes[at])) { Ok(()) } else { Err(self.place.wrong(at)) }
    }
}

impl Place {
    fn key(self, at: usize) -> Bytes {
        format!("key{:016}", self.number(at)).into()
    }

    fn number(self, at: usize) -> u64 {
        self.first + at as u64 * self.of
    }

    /// The value of a key after this many writes.
    fn value(self, at: usize, writes: u64) -> Bytes {
        let mut value = format!("{}-{writes}-", self.number(at)).into_bytes();
        value.resize(self.value_len.max(value.len()), b'.');
        value.into()
    }

    fn wrong(self, at: usize) -> CommandError {
        CommandError::Wrong(String::from_utf8_lossy(&self.key(at)).into_owned())
    }
}

/// A generator of numbers without pattern (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 11
}
