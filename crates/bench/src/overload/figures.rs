//! The figures of a load, computed from its book.

use super::clients::Clients;
use super::open_loop::Look;
use super::record::{Book, Failure, Outcome, Outcomes, Record};
use super::recovery::{BIN, bins_of, recovered_after};
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The figures of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// The server's capacity: replies a second in a closed loop; the mean over the measured time if
    /// costs change.
    pub(super) capacity_per_s: f64,
    /// Requests that arrived.
    pub(super) arrivals: u64,
    pub(super) offered_per_s: f64,
    /// Right replies within the deadline, and later ones.
    pub(super) good: u64,
    pub(super) late: u64,
    /// Replies with status 503.
    pub(super) refused: u64,
    pub(super) given_up: u64,
    /// Failed requests, and their number by kind.
    pub(super) errors: u64,
    pub(super) errors_by_kind: BTreeMap<String, u64>,
    pub(super) goodput_per_s: f64,
    /// In percent of the capacity: good replies, and the work in them, which does not rise if cheap
    /// requests are preferred.
    pub(super) goodput_percent: f64,
    pub(super) work_percent: f64,
    /// The latency of right replies, within the deadline or not, from their due times.
    pub(super) accepted_p50_ms: Option<f64>,
    pub(super) accepted_p99_ms: Option<f64>,
    pub(super) refusal_p50_ms: Option<f64>,
    pub(super) refusal_p99_ms: Option<f64>,
    pub(super) refusal_max_ms: Option<f64>,
    /// Refusals without `Retry-After`.
    pub(super) refused_without_retry_after: u64,
    /// The time from the end of the peak until 95 % are answered well again; `None` if there is no
    /// peak or no recovery.
    pub(super) recovered_after_ms: Option<f64>,
    /// User and system time of the server, in seconds, and in percent of one core.
    pub(super) server_cpu_s: f64,
    pub(super) server_cpu_percent: f64,
    /// Resident memory of the server at the end, and its maximum, in 10^6 bytes.
    pub(super) resident_mb: f64,
    pub(super) resident_max_mb: f64,
    /// User and system time of the generator, per request.
    pub(super) load_cpu_us: f64,
    /// The same in percent of one core.
    pub(super) load_cpu_percent: f64,
    /// The lateness of the generator.
    pub(super) load_late_p99_ms: f64,
    /// The generator was late too often, so these are not the figures of this load.
    pub(super) load_fell_behind: bool,
    pub(super) in_flight_max: usize,
    /// Each measured phase of the load.
    pub(super) phases: Vec<PhaseFigures>,
    /// For loads with a change: arrivals, good replies and refusals, in each tenth of a second from
    /// the beginning.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) per_100_ms: Vec<[u64; 3]>,
    /// The figures of each client, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) clients: Vec<ClientFigures>,
    /// Seconds measured.
    pub(super) secs: f64,
}

/// The figures of one of several clients.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClientFigures {
    pub(super) client: String,
    pub(super) arrivals: u64,
    pub(super) good: u64,
    pub(super) refused: u64,
    pub(super) given_up: u64,
    pub(super) errors: u64,
    /// Good replies, in percent of its own requests, and per second.
    pub(super) in_time_percent: f64,
    pub(super) goodput_per_s: f64,
    pub(super) accepted_p50_ms: Option<f64>,
    pub(super) accepted_p99_ms: Option<f64>,
}

/// The figures of one phase of the load.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PhaseFigures {
    pub(super) secs: f64,
    pub(super) capacity_per_s: f64,
    pub(super) arrivals: u64,
    pub(super) goodput_per_s: f64,
    pub(super) goodput_percent: f64,
}

/// Facts that are not in the book.
pub(super) struct Known<'a> {
    pub(super) deadline: Duration,
    /// The server's capacity with the costs of a phase.
    pub(super) capacity: &'a dyn Fn(&[u32]) -> f64,
    /// The readings before and after the measured time.
    pub(super) looks: (Look, Look),
    pub(super) resident_bytes: (u64, u64),
    pub(super) in_flight_max: usize,
    /// Index of the phase after a peak.
    pub(super) rest: Option<usize>,
}

impl Figures {
    /// Computes the figures. Fails if the book does not balance or a reply was wrong.
    pub(super) fn of(book: &Book, known: &Known) -> Result<Figures> {
        book.check()?;
        let all = Outcomes::of(book.measured(), known.deadline);
        let arrivals: u64 = measured_phases(book).map(|(phase, _)| book.arrivals(phase)).sum();
        ensure!(arrivals == all.sum(), "{arrivals} requests came, and {} came to an end", all.sum());
        ensure!(arrivals > 0, "nothing came while it was measured: pass more --secs");
        let errors_by_kind = errors_by_kind(book);
        let wrong = [Failure::WrongBody, Failure::Malformed].map(|failure| failure.kind());
        for (kind, count) in &errors_by_kind {
            ensure!(!wrong.contains(kind), "{count} replies were wrong: {kind}");
        }
        let secs: f64 = measured_phases(book).map(|(_, secs)| secs).sum();
        let capacity = measured_phases(book).map(|(phase, secs)| secs * known.capacity_of(book, phase)).sum::<f64>();
        let phases = measured_phases(book).map(|(phase, secs)| known.phase(book, phase, secs)).collect();
        let accepted = sorted_ms(book.measured().filter(|record| record.outcome == Outcome::Right));
        let refusals = sorted_ms(book.measured().filter(|record| matches!(record.outcome, Outcome::Refused { .. })));
        let mut late: Vec<f64> = book.measured().map(|record| record.late.as_secs_f64() * 1e3).collect();
        late.sort_by(f64::total_cmp);
        let load_late_p99_ms = quantile(&late, 0.99).unwrap_or(0.0);
        let (first, last) = known.looks;
        let (watched_secs, own_cpu_secs) = ((last.at - first.at).as_secs_f64(), (last.own - first.own).as_secs_f64());
        let server_cpu = last.server.saturating_sub(first.server);
        let without_retry_after = Outcome::Refused { retry_after: false };
        Ok(Figures {
            capacity_per_s: capacity / secs,
            arrivals,
            offered_per_s: arrivals as f64 / secs,
            good: all.good,
            late: all.late,
            refused: all.refused,
            given_up: all.given_up,
            errors: all.failed,
            errors_by_kind,
            goodput_per_s: all.good as f64 / secs,
            goodput_percent: 100.0 * all.good as f64 / capacity,
            work_percent: 100.0 * known.work_share(book),
            accepted_p50_ms: quantile(&accepted, 0.5),
            accepted_p99_ms: quantile(&accepted, 0.99),
            refusal_p50_ms: quantile(&refusals, 0.5),
            refusal_p99_ms: quantile(&refusals, 0.99),
            refusal_max_ms: refusals.last().copied(),
            refused_without_retry_after: book.measured().filter(|own| own.outcome == without_retry_after).count()
                as u64,
            recovered_after_ms: known.recovered_after_ms(book),
            server_cpu_s: server_cpu.as_secs_f64(),
            server_cpu_percent: 100.0 * server_cpu.as_secs_f64() / watched_secs,
            resident_mb: known.resident_bytes.0 as f64 / 1e6,
            resident_max_mb: known.resident_bytes.1 as f64 / 1e6,
            load_cpu_us: own_cpu_secs * 1e6 / arrivals as f64,
            load_cpu_percent: 100.0 * own_cpu_secs / watched_secs,
            load_late_p99_ms,
            load_fell_behind: load_late_p99_ms > LATE_MS_MAX,
            in_flight_max: known.in_flight_max,
            phases,
            per_100_ms: if measured_phases(book).count() > 1 { known.timeline(book) } else { Vec::new() },
            clients: known.clients(book, secs),
            secs,
        })
    }
}

impl Known<'_> {
    fn capacity_of(&self, book: &Book, phase: usize) -> f64 {
        (self.capacity)(&book.phases[phase].costs_us)
    }

    fn is_good(&self, record: &Record) -> bool {
        record.outcome == Outcome::Right && record.took <= self.deadline
    }

    fn phase(&self, book: &Book, phase: usize, secs: f64) -> PhaseFigures {
        let capacity_per_s = self.capacity_of(book, phase);
        let goodput_per_s = Outcomes::of(book.of_phase(phase), self.deadline).good as f64 / secs;
        let goodput_percent = 100.0 * goodput_per_s / capacity_per_s;
        PhaseFigures { secs, capacity_per_s, arrivals: book.arrivals(phase), goodput_per_s, goodput_percent }
    }

    /// The work in good replies, as a share of the possible work.
    fn work_share(&self, book: &Book) -> f64 {
        let work_us = |phase: usize| {
            let good = book.of_phase(phase).filter(|record| self.is_good(record));
            // Not `sum`, which is minus zero for no values.
            good.fold(0.0, |sum, record| sum + f64::from(record.arrival.cost_us))
        };
        let possible_us = |phase: usize, secs: f64| {
            let costs = &book.phases[phase].costs_us;
            let mean_us = costs.iter().copied().map(f64::from).sum::<f64>() / costs.len() as f64;
            secs * self.capacity_of(book, phase) * mean_us
        };
        let done = measured_phases(book).fold(0.0, |sum, (phase, _)| sum + work_us(phase));
        done / measured_phases(book).map(|(phase, secs)| possible_us(phase, secs)).sum::<f64>()
    }

    fn recovered_after_ms(&self, book: &Book) -> Option<f64> {
        let rest = self.rest?;
        let begin = begin_of(book, rest);
        let length = Duration::from_secs_f64(book.phases[rest].secs);
        let all = book.of_phase(rest).map(|own| self.ends(own, begin));
        recovered_after(&bins_of(length, all)).map(|after| after.as_secs_f64() * 1e3)
    }

    fn timeline(&self, book: &Book) -> Vec<[u64; 3]> {
        let length = begin_of(book, book.phases.len());
        let all = book.all().iter().map(|own| self.ends(own, Duration::ZERO));
        bins_of(length, all).into_iter().map(|bin| [bin.arrivals, bin.good, bin.refused]).collect()
    }

    /// Empty if all clients are alike.
    fn clients(&self, book: &Book, secs: f64) -> Vec<ClientFigures> {
        let clients = book.phases.first().map_or(&[][..], |phase| phase.clients);
        if clients.len() < 2 {
            return Vec::new();
        }
        let one = |(index, clients): (usize, &Clients)| {
            let own = || book.measured().filter(|record| record.arrival.client == index);
            let all = Outcomes::of(own(), self.deadline);
            let accepted = sorted_ms(own().filter(|record| record.outcome == Outcome::Right));
            ClientFigures {
                client: clients.name.to_owned(),
                arrivals: all.sum(),
                good: all.good,
                refused: all.refused,
                given_up: all.given_up,
                errors: all.failed,
                in_time_percent: 100.0 * all.good as f64 / all.sum().max(1) as f64,
                goodput_per_s: all.good as f64 / secs,
                accepted_p50_ms: quantile(&accepted, 0.5),
                accepted_p99_ms: quantile(&accepted, 0.99),
            }
        };
        clients.iter().enumerate().map(one).collect()
    }

    /// When it arrived, whether it was good, whether it was refused.
    fn ends(&self, record: &Record, begin: Duration) -> (Duration, bool, bool) {
        let is_refused = matches!(record.outcome, Outcome::Refused { .. });
        (record.arrival.due.saturating_sub(begin), self.is_good(record), is_refused)
    }
}

/// When a phase begins.
fn begin_of(book: &Book, phase: usize) -> Duration {
    Duration::from_secs_f64(book.phases[..phase].iter().map(|phase| phase.secs).sum())
}

/// Index and seconds of the measured phases.
fn measured_phases(book: &Book) -> impl Iterator<Item = (usize, f64)> {
    let measured = book.phases.iter().enumerate().filter(|(_, phase)| phase.measured);
    measured.map(|(index, phase)| (index, phase.secs))
}

fn errors_by_kind(book: &Book) -> BTreeMap<String, u64> {
    let mut kinds = BTreeMap::new();
    // Wrong replies of the warm-up count too.
    for record in book.all() {
        if let Outcome::Failed(failure) = record.outcome {
            let is_wrong = matches!(failure, Failure::WrongBody | Failure::Malformed);
            if is_wrong || book.phases[record.arrival.phase].measured {
                *kinds.entry(failure.kind()).or_default() += 1;
            }
        }
    }
    kinds
}

fn sorted_ms<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<f64> {
    let mut all: Vec<f64> = records.map(|record| record.took.as_secs_f64() * 1e3).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The value that this share does not exceed; `None` for no values.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let due = ((sorted.len() as f64 * share).ceil() as usize).max(1);
    sorted.get(due - 1).copied()
}

/// The lateness that at most one in a hundred requests may have. Deadlines are tens of
/// milliseconds.
const LATE_MS_MAX: f64 = 2.0;

/// Milliseconds of a bin of `per_100_ms`.
pub(super) const BIN_MS: usize = BIN.as_millis() as usize;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overload::clients::{ALIKE, FLOOD};
    use crate::overload::schedule::{Arrival, Phase};
    use std::time::Instant;

    fn look(server_ms: u64, at: Instant) -> Look {
        Look { at, server: Duration::from_millis(server_ms), own: Duration::from_millis(server_ms / 10) }
    }

    fn phase(secs: f64, cost_us: u32, measured: bool) -> Phase {
        Phase { secs, rate_per_s: 10.0, costs_us: vec![cost_us], clients: ALIKE, measured }
    }

    /// Ten a second arrive; those of the first phase are given up, then every second one is good
    /// for a second, then all are.
    fn book() -> Book {
        let mut book = Book::new(vec![phase(1.0, 5_000, false), phase(1.0, 20_000, true), phase(2.0, 5_000, true)]);
        for number in 0..40_u64 {
            let due = Duration::from_millis(number * 100);
            let phase = if number < 10 { 0 } else { usize::from(number >= 20) + 1 };
            let arrival = Arrival { due, cost_us: book.phases[phase].costs_us[0], phase, client: 0 };
            let outcome = match (phase, number % 2) {
                (0, _) => Outcome::GivenUp,
                (1, 0) => Outcome::Refused { retry_after: number % 4 == 0 },
                _ => Outcome::Right,
            };
            book.came(&arrival);
            book.ended(Record {
                arrival,
                late: Duration::from_micros(number),
                took: Duration::from_millis(number),
                outcome,
            });
        }
        book
    }

    fn figures(book: &Book) -> Result<Figures> {
        let begin = Instant::now();
        let known = Known {
            deadline: Duration::from_millis(37),
            capacity: &|costs| if costs == [20_000] { 10.0 } else { 40.0 },
            looks: (look(100, begin), look(1_600, begin + Duration::from_secs(3))),
            resident_bytes: (2_000_000, 3_000_000),
            in_flight_max: 3,
            rest: Some(2),
        };
        Figures::of(book, &known)
    }

    #[test]
    fn a_book_is_summed_up() {
        let figures = figures(&book()).expect("it adds up");
        let counts = (figures.arrivals, figures.good, figures.late, figures.refused, figures.given_up, figures.errors);
        assert_eq!(counts, (30, 23, 2, 5, 0, 0));
        assert_eq!((figures.secs, figures.capacity_per_s, figures.offered_per_s), (3.0, 30.0, 10.0));
        assert!((figures.goodput_per_s - 23.0 / 3.0).abs() < 1e-9);
        assert!((figures.goodput_percent - 100.0 * 23.0 / 90.0).abs() < 1e-9);
        // The work done is 5 of 20 ms and 18 of 5 ms; the possible work is 10 of 20 ms and 80 of 5
        // ms.
        assert!((figures.work_percent - 100.0 * 190.0 / 600.0).abs() < 1e-9);
        assert_eq!((figures.accepted_p50_ms, figures.accepted_p99_ms), (Some(27.0), Some(39.0)));
        assert_eq!((figures.refusal_p50_ms, figures.refusal_max_ms), (Some(14.0), Some(18.0)));
        assert_eq!(figures.refused_without_retry_after, 3);
        assert!((figures.server_cpu_percent - 50.0).abs() < 1e-9 && !figures.load_fell_behind);
        assert_eq!(figures.phases.iter().map(|phase| phase.goodput_percent).collect::<Vec<_>>(), [50.0, 22.5]);
        assert_eq!(
            (figures.per_100_ms.len(), figures.per_100_ms[12], figures.per_100_ms[13]),
            (40, [1, 0, 1], [1, 1, 0])
        );
    }

    #[test]
    fn a_generator_that_is_late_is_told_of() {
        let mut book = Book::new(vec![phase(1.0, 5_000, true)]);
        let arrival = Arrival { due: Duration::ZERO, cost_us: 5_000, phase: 0, client: 0 };
        let late = Duration::from_millis(3);
        book.came(&arrival);
        book.ended(Record { arrival, late, took: late, outcome: Outcome::Right });
        assert!(figures_of_one_phase(&book).is_ok_and(|figures| figures.load_fell_behind));
    }

    #[test]
    fn a_wrong_reply_fails_the_check() {
        let mut book = book();
        let arrival = Arrival { due: Duration::ZERO, cost_us: 5_000, phase: 0, client: 0 };
        book.came(&arrival);
        assert!(figures(&book).is_err_and(|error| error.to_string().contains("11 requests came in phase 0")));
        let outcome = Outcome::Failed(Failure::WrongBody);
        book.ended(Record { arrival, late: Duration::ZERO, took: Duration::ZERO, outcome });
        assert!(figures(&book).is_err_and(|error| error.to_string().contains("1 replies were wrong")));
    }

    #[test]
    fn each_client_has_its_own_figures() {
        let mut book = Book::new(vec![Phase { clients: FLOOD, ..phase(1.0, 5_000, true) }]);
        for number in 0..10 {
            let arrival = Arrival { due: Duration::ZERO, cost_us: 5_000, phase: 0, client: usize::from(number == 0) };
            let outcome = if number < 4 { Outcome::Right } else { Outcome::GivenUp };
            book.came(&arrival);
            book.ended(Record { arrival, late: Duration::ZERO, took: Duration::from_millis(number), outcome });
        }
        let figures = figures_of_one_phase(&book).expect("it adds up");
        let shares: Vec<(&str, u64, u64, u64)> =
            figures.clients.iter().map(|own| (own.client.as_str(), own.arrivals, own.good, own.given_up)).collect();
        assert_eq!(shares, [("flood", 9, 3, 6), ("other", 1, 1, 0)]);
        assert_eq!(figures.clients[1].in_time_percent, 100.0);
        assert_eq!(figures.clients[0].accepted_p99_ms, Some(3.0));
    }

    fn figures_of_one_phase(book: &Book) -> Result<Figures> {
        let begin = Instant::now();
        let looks = (look(0, begin), look(0, begin + Duration::from_secs(1)));
        let deadline = Duration::from_millis(100);
        Figures::of(
            book,
            &Known { deadline, capacity: &|_| 1.0, looks, resident_bytes: (0, 0), in_flight_max: 1, rest: None },
        )
    }
}
