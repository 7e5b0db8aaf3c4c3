//! The costs of requests, and changes of costs or load in the measured time.

use super::clients::{ALIKE, CLASSES, Clients, FLOOD, times_of};
use super::schedule::Phase;
use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One course of an overload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) enum Scenario {
    /// Every request has this cost.
    Fixed { cost_us: u32 },
    /// Each request costs one of three, which are equally likely.
    Mixed,
    /// The cost changes and changes back; the number of requests changes with it, so that the load
    /// stays the same multiple.
    CostChange,
    /// Five times the server's capacity for a while, and then nine tenths of it.
    LoadChange,
    /// A constant number of requests, nine tenths of the server's capacity, which for a while cost
    /// five times as much.
    CostRise,
    /// One client sends far more than its share.
    Flood,
    /// Clients of different importance send too much together.
    Classes,
}

/// The question that a scenario answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Question {
    /// The result at each of several loads.
    Sweep,
    /// The recovery after a peak.
    Change,
    /// The share of each of several clients' requests that is answered.
    Shares,
}

/// Returns the server's capacity: requests a second with these costs in turn.
pub(super) type Capacity<'a> = &'a dyn Fn(&[u32]) -> f64;

/// The lengths of the parts of a course, in seconds.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    /// Measured: all of a sweep, or the time after the peak.
    pub(super) secs: f64,
    pub(super) peak_secs: f64,
    /// How long a client waits. The load continues for this long after the measured time, so that
    /// the last requests have the same conditions as the others.
    pub(super) give_up_secs: f64,
}

impl Scenario {
    /// Its question. Only sweeps vary the load.
    pub(super) fn question(self) -> Question {
        match self {
            Scenario::Fixed { .. } | Scenario::Mixed | Scenario::CostChange => Question::Sweep,
            Scenario::LoadChange | Scenario::CostRise => Question::Change,
            Scenario::Flood | Scenario::Classes => Question::Shares,
        }
    }

    /// The clients.
    pub(super) fn clients(self) -> &'static [Clients] {
        match self {
            Scenario::Flood => FLOOD,
            Scenario::Classes => CLASSES,
            _ => ALIKE,
        }
    }

    /// All costs that occur, in groups that occur together.
    pub(super) fn costs(self) -> Vec<Vec<u32>> {
        match self {
            Scenario::Fixed { cost_us } => vec![vec![cost_us]],
            Scenario::Mixed => vec![MIXED_US.to_vec()],
            Scenario::CostChange => vec![vec![BASE_US], vec![CHANGED_US]],
            Scenario::LoadChange | Scenario::Flood | Scenario::Classes => vec![vec![BASE_US]],
            Scenario::CostRise => vec![vec![BASE_US], vec![RISEN_US]],
        }
    }

    /// The phases of the load, at a multiple of the server's capacity.
    pub(super) fn phases(self, times: f64, lengths: Lengths, capacity: Capacity) -> Vec<Phase> {
        let Lengths { secs, peak_secs, give_up_secs } = lengths;
        let at = |times: f64, costs: &[u32], secs: f64, measured: bool| Phase {
            secs,
            rate_per_s: times * capacity(costs),
            costs_us: costs.to_vec(),
            clients: self.clients(),
            measured,
        };
        let warm_up_secs = secs.min(WARM_UP_SECS_MAX);
        let steady = |costs: &[u32]| {
            let times = times * times_of(self.clients());
            vec![
                at(times, costs, warm_up_secs, false),
                at(times, costs, secs, true),
                at(times, costs, give_up_secs, false),
            ]
        };
        let rest = |secs, measured| at(REST_TIMES, &[BASE_US], secs, measured);
        let peak = match self {
            Scenario::Fixed { cost_us } => return steady(&[cost_us]),
            Scenario::Mixed => return steady(&MIXED_US),
            Scenario::Flood | Scenario::Classes => return steady(&[BASE_US]),
            Scenario::CostChange => {
                let part = |cost_us: u32| at(times, &[cost_us], secs / 2.0, true);
                let (before, after) =
                    (at(times, &[BASE_US], warm_up_secs, false), at(times, &[BASE_US], give_up_secs, false));
                return vec![before, part(BASE_US), part(CHANGED_US), part(BASE_US), after];
            }
            Scenario::LoadChange => at(PEAK_TIMES, &[BASE_US], peak_secs, true),
            Scenario::CostRise => Phase { costs_us: vec![RISEN_US], ..rest(peak_secs, true) },
        };
        vec![rest(warm_up_secs, false), peak, rest(secs, true), rest(give_up_secs, false)]
    }

    /// The change, and its begin and end; `measured_secs` are the lengths of the measured phases.
    pub(super) fn peak(self, measured_secs: &[f64]) -> Option<String> {
        let (what, before_secs, peak_secs, secs) = match (self, measured_secs) {
            (Scenario::LoadChange, &[peak, rest]) => (format!("{PEAK_TIMES}x"), 0.0, peak, rest),
            (Scenario::CostRise, &[peak, rest]) => (format!("{} ms each", RISEN_US / 1_000), 0.0, peak, rest),
            (Scenario::CostChange, &[before, changed, _]) => {
                (format!("{} ms each", CHANGED_US / 1_000), before, changed, before + changed)
            }
            _ => return None,
        };
        let begin_secs = secs.min(WARM_UP_SECS_MAX) + before_secs;
        Some(format!("; {what} from {begin_secs} to {}", begin_secs + peak_secs))
    }

    /// A line above its table.
    pub(super) fn title(self) -> String {
        let ms = |us: u32| f64::from(us) / 1e3;
        match self {
            Scenario::Fixed { cost_us } => format!("{} ms of CPU a request", ms(cost_us)),
            Scenario::Mixed => {
                format!("{}, {} or {} ms of CPU a request", ms(MIXED_US[0]), ms(MIXED_US[1]), ms(MIXED_US[2]))
            }
            Scenario::CostChange => {
                format!(
                    "{0} ms of CPU a request, then {1}, then {0}, at the same multiple",
                    ms(BASE_US),
                    ms(CHANGED_US)
                )
            }
            Scenario::LoadChange => {
                format!("{PEAK_TIMES}x, then {REST_TIMES}x; {} ms of CPU a request", ms(BASE_US))
            }
            Scenario::CostRise => {
                format!(
                    "{REST_TIMES}x at {0} ms of CPU a request, which is {1} ms for a while",
                    ms(BASE_US),
                    ms(RISEN_US)
                )
            }
            Scenario::Flood | Scenario::Classes => {
                let each: Vec<String> =
                    self.clients().iter().map(|clients| format!("{} {}x", clients.name, clients.times)).collect();
                format!("{self}: {}; {} ms of CPU a request", each.join(", "), ms(BASE_US))
            }
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scenario::Fixed { cost_us } => write!(out, "{}ms", f64::from(*cost_us) / 1e3),
            Scenario::Mixed => write!(out, "mixed"),
            Scenario::CostChange => write!(out, "cost-change"),
            Scenario::LoadChange => write!(out, "load-change"),
            Scenario::CostRise => write!(out, "cost-rise"),
            Scenario::Flood => write!(out, "flood"),
            Scenario::Classes => write!(out, "classes"),
        }
    }
}

impl FromStr for Scenario {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Scenario> {
        Ok(match text {
            "mixed" => Scenario::Mixed,
            "cost-change" => Scenario::CostChange,
            "load-change" => Scenario::LoadChange,
            "cost-rise" => Scenario::CostRise,
            "flood" => Scenario::Flood,
            "classes" => Scenario::Classes,
            _ => {
                let Some(Ok(ms)) = text.strip_suffix("ms").map(str::parse::<f64>) else {
                    bail!("write a cost such as 5ms, or mixed, cost-change, load-change, cost-rise, flood or classes")
                };
                ensure!((0.01..=1_000.0).contains(&ms), "a request may cost 0.01ms to 1000ms");
                Scenario::Fixed { cost_us: (ms * 1e3).round() as u32 }
            }
        })
    }
}

impl TryFrom<String> for Scenario {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Scenario> {
        text.parse()
    }
}

impl From<Scenario> for String {
    fn from(scenario: Scenario) -> String {
        scenario.to_string()
    }
}

const BASE_US: u32 = 5_000;
const CHANGED_US: u32 = 20_000;
const RISEN_US: u32 = 25_000;
const MIXED_US: [u32; 3] = [1_000, 5_000, 50_000];

const PEAK_TIMES: f64 = 5.0;
const REST_TIMES: f64 = 0.9;

/// Long enough for a queue to grow too long.
const WARM_UP_SECS_MAX: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: Lengths = Lengths { secs: 4.0, peak_secs: 10.0, give_up_secs: 1.0 };

    /// A server without overhead.
    fn ideal(costs: &[u32]) -> f64 {
        1e6 * costs.len() as f64 / costs.iter().sum::<u32>() as f64
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["5ms", "0.25ms", "50ms", "mixed", "cost-change", "load-change", "cost-rise", "flood", "classes"] {
            assert_eq!(name.parse::<Scenario>().expect(name).to_string(), name);
        }
        for wrong in ["5", "0ms", "-1ms", "2000ms", "nanms", "load", ""] {
            assert!(wrong.parse::<Scenario>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_sweep_is_at_its_multiple_throughout() {
        let phases = Scenario::Fixed { cost_us: 5_000 }.phases(2.0, LENGTHS, &ideal);
        assert!(phases.iter().all(|phase| phase.rate_per_s == 400.0));
        assert_eq!(
            phases.iter().map(|phase| (phase.secs, phase.measured)).collect::<Vec<_>>(),
            [(1.0, false), (4.0, true), (1.0, false)]
        );
        let changing = Scenario::CostChange.phases(2.0, LENGTHS, &ideal);
        assert_eq!(
            changing.iter().map(|phase| phase.rate_per_s).collect::<Vec<_>>(),
            [400.0, 400.0, 100.0, 400.0, 400.0]
        );
    }

    #[test]
    fn a_peak_comes_by_number_or_by_cost() {
        let rates = |scenario: Scenario| {
            let phases = scenario.phases(1.0, LENGTHS, &ideal);
            phases.iter().map(|phase| (phase.rate_per_s, phase.costs_us[0], phase.secs)).collect::<Vec<_>>()
        };
        assert_eq!(
            rates(Scenario::LoadChange),
            [(180.0, 5_000, 1.0), (1_000.0, 5_000, 10.0), (180.0, 5_000, 4.0), (180.0, 5_000, 1.0)]
        );
        assert_eq!(rates(Scenario::CostRise)[1], (180.0, 25_000, 10.0));
        assert_eq!(Scenario::LoadChange.peak(&[10.0, 4.0]).as_deref(), Some("; 5x from 1 to 11"));
        assert_eq!(Scenario::CostChange.peak(&[2.0; 3]).as_deref(), Some("; 20 ms each from 3 to 5"));
        assert_eq!(Scenario::Mixed.peak(&[4.0]), None);
        assert_eq!(rates(Scenario::Classes), [(1_000.0, 5_000, 1.0), (1_000.0, 5_000, 4.0), (1_000.0, 5_000, 1.0)]);
    }
}
