//! Plans as text: what a report shows can be changed, and run again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::plan::{DiskFault, Fault, NameFault, Plan, Planned, Ways};

/// The text is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    line: usize,
    text: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanError { line, text } = self;
        write!(f, "line {line} is no fault: {text:?}; a fault is written as `at 1s, for 20ms: server crashes`")
    }
}

impl std::error::Error for PlanError {}

/// Reads a plan in the form in which [`Display`](fmt::Display) writes it. The numbers at the beginning of lines may be missing; empty lines and
/// lines that begin with `#` mean nothing. Host names must not have spaces.
///
/// ```
/// use dapple_sim::Plan;
///
/// let text = "0: at 1s, for 3.5ms: db crashes\n1: at 2s, for 1s: nothing gets from web to db\n";
/// let plan: Plan = text.parse().unwrap();
/// assert_eq!(plan.to_string(), text);
/// assert!("db crashes".parse::<Plan>().is_err(), "at which time?");
/// ```
impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Plan, PlanError> {
        let mut plan = Plan::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let error = || PlanError { line: index + 1, text: line.to_owned() };
            plan.faults.push(planned(line).ok_or_else(error)?);
        }
        Ok(plan)
    }
}

fn planned(line: &str) -> Option<Planned> {
    let numbered = line.split_once(": ").filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()));
    let line = numbered.map_or(line, |(_, rest)| rest);
    let (at, rest) = line.strip_prefix("at ")?.split_once(", for ")?;
    let (lasts, what) = rest.split_once(": ")?;
    Some(Planned { at: duration(at)?, lasts: duration(lasts)?, fault: fault(what)? })
}

fn fault(text: &str) -> Option<Fault> {
    let words: Vec<&str> = text.split(' ').collect();
    let fault = match words[..] {
        ["nothing", "gets", "from", from, "to", to] => Fault::Cut(from.to_owned(), to.to_owned()),
        ["packets", ref ways @ .., "take", by, "times", "as", "long"] => {
            Fault::Latency(ways_of(ways)?, by.parse().ok()?)
        }
        [rate, "of", "a", "million", "datagrams", ref ways @ .., "are", "lost"] => {
            Fault::Loss(ways_of(ways)?, rate.parse().ok()?)
        }
        ["one", "connection", "between", one, "and", other, "stalls"] => Fault::Stall(one.to_owned(), other.to_owned()),
        ["connections", "of", host, "are", "reset"] => Fault::Reset(host.to_owned()),
        ["the", "wall", "clock", "of", host, "is", by, "fast"] => Fault::WallClock(host.to_owned(), duration(by)?),
        ["the", "wall", "clock", "of", host, "is", by, "slow"] => Fault::WallClockBack(host.to_owned(), duration(by)?),
        ["the", "clocks", "of", host, "gain", by, "us", "a", "second"] => Fault::Drift(host.to_owned(), drift(by)?),
        ["the", "clocks", "of", host, "lose", by, "us", "a", "second"] => Fault::Drift(host.to_owned(), -drift(by)?),
        ["names", "that", host, "looks", "up", "are", ref how @ ..] => Fault::Names(host.to_owned(), name_fault(how)?),
        ["the", "disk", "of", host, ref how @ ..] => Fault::Disk(host.to_owned(), disk_fault(how)?),
        [host, "crashes"] => Fault::Crash(host.to_owned()),
        [host, "stands", "still"] => Fault::Freeze(host.to_owned()),
        [host, "is", "cut", "off"] => Fault::Isolate(host.to_owned()),
        _ => return None,
    };
    Some(fault)
}

/// How much clocks gain or lose, in us a second.
fn drift(text: &str) -> Option<i32> {
    text.parse().ok().filter(|by| *by >= 0)
}

fn ways_of(words: &[&str]) -> Option<Ways> {
    match words {
        ["of", host] => Some(Ways::Of((*host).to_owned())),
        ["from", from, "to", to] => Some(Ways::From((*from).to_owned(), (*to).to_owned())),
        _ => None,
    }
}

fn disk_fault(words: &[&str]) -> Option<DiskFault> {
    match words {
        ["fails"] => Some(DiskFault::Errors),
        ["is", "full"] => Some(DiskFault::Full),
        ["is", by, "slow"] => Some(DiskFault::Slow(duration(by)?)),
        _ => None,
    }
}

fn name_fault(words: &[&str]) -> Option<NameFault> {
    match words {
        ["missing"] => Some(NameFault::Missing),
        ["wrong"] => Some(NameFault::Wrong),
        [by, "late"] => Some(NameFault::Slow(duration(by)?)),
        _ => None,
    }
}

/// A time as `Duration`'s `Debug` writes it, which is exact.
fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let nanos: u128 = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if part.len() > 9 {
        return None;
    }
    let (whole, digits): (u64, u128) = (whole.parse().ok()?, part.parse().ok()?);
    let sum = u128::from(whole) * nanos + digits * nanos / 10_u128.pow(part.len() as u32);
    Some(Duration::from_nanos(sum.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Faults;
    use crate::random::Random;

    #[test]
    fn each_plan_is_read_as_it_was_written() {
        let second = Duration::from_secs(1);
        let faults = Faults::new(second * 10).at_most(20).crash("a").freeze("b").cut("a", "b").isolate("c").reset("a");
        let faults = faults.wall_clock("b", second * 9).names("c", second).disk("b", second);
        let faults = faults
            .stall("a", "b")
            .drift("a", 900)
            .latency("a", 9)
            .latency_between("a", "b", 9)
            .loss("c", 900_000)
            .loss_between("b", "c", 9);
        let mut texts = String::new();
        for seed in 0..200 {
            let plan = faults.plan(&mut Random::new(seed));
            texts += &plan.to_string();
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
        for (what, how) in
            [("wall clock of b is", "fast"), ("wall clock of b is", "slow"), ("clocks", "gain"), ("clocks", "lose")]
        {
            assert!(texts.lines().any(|line| line.contains(what) && line.contains(how)), "{what} {how}");
        }
    }

    #[test]
    fn numbers_comments_and_empty_lines_may_be_there_or_not() {
        let plan: Plan = "# by hand\n\n  at 5us, for 1.5s: db is cut off\n".parse().unwrap();
        assert_eq!(plan.to_string(), "0: at 5µs, for 1.5s: db is cut off\n");
    }

    #[test]
    fn other_lines_are_refused_with_their_number() {
        let wrong = [
            "db crashes",
            "at 1s: db crashes",
            "at 1, for 1s: db crashes",
            "at -1s, for 1s: db crashes",
            "at 1s, for 99999999999999s: db crashes",
            "at 1s, for 1.0000000001s: db crashes",
            "at 1s, for 1s: db explodes",
            "at 1s, for 1s: names that db looks up are late",
            "at 1s, for 1s: packets to db take 9 times as long",
            "at 1s, for 1s: packets of db take -9 times as long",
            "at 1s, for 1s: the clocks of db lose -9 us a second",
            "at 1s, for 1s: some of a million datagrams of db are lost",
            "at 1s, for 1s:",
            "1: ",
        ];
        for line in wrong {
            let error = format!("at 1s, for 1s: db crashes\n{line}").parse::<Plan>().unwrap_err();
            assert!(error.to_string().starts_with("line 2 is no fault"), "{error}");
        }
    }
}
