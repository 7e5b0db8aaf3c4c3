//! The time that a server takes to recover.

use std::time::Duration;

/// The outcomes of the requests that arrived in a tenth of a second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Bin {
    pub(super) arrivals: u64,
    pub(super) good: u64,
    pub(super) refused: u64,
}

/// Sorts requests into bins: each with its arrival after the first bin's begin, and its outcome.
pub(super) fn bins_of(length: Duration, all: impl Iterator<Item = (Duration, bool, bool)>) -> Vec<Bin> {
    let mut bins = vec![Bin::default(); length.as_nanos().div_ceil(BIN.as_nanos()) as usize];
    for (at, is_good, is_refused) in all {
        if let Some(bin) = bins.get_mut((at.as_nanos() / BIN.as_nanos()) as usize) {
            bin.arrivals += 1;
            bin.good += u64::from(is_good);
            bin.refused += u64::from(is_refused);
        }
    }
    bins
}

/// The time after which all is well again: of the requests of the second that begins then, and of
/// all later ones together, at least 95 % get a good answer. `None` if that does not happen within
/// these bins.
pub(super) fn recovered_after(bins: &[Bin]) -> Option<Duration> {
    let window = WINDOW_BINS.min(bins.len());
    let last = bins.len().checked_sub(window).filter(|_| window > 0)?;
    let found = (0..=last).find(|&begin| is_well(&bins[begin..begin + window]) && is_well(&bins[begin..]))?;
    Some(BIN * found as u32)
}

/// The resolution.
pub(super) const BIN: Duration = Duration::from_millis(100);

/// A second.
const WINDOW_BINS: usize = 10;

fn is_well(bins: &[Bin]) -> bool {
    let (arrivals, good) = bins.iter().fold((0, 0), |sum, bin| (sum.0 + bin.arrivals, sum.1 + bin.good));
    arrivals > 0 && good * 100 >= arrivals * 95
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(good: impl Iterator<Item = u64>) -> Vec<Bin> {
        good.map(|good| Bin { arrivals: 20, good, refused: 0 }).collect()
    }

    fn ms(bins: &[Bin]) -> Option<u128> {
        recovered_after(bins).map(|after| after.as_millis())
    }

    #[test]
    fn requests_are_counted_by_when_they_came() {
        let at = |ms| Duration::from_millis(ms);
        let all = [(at(0), true, false), (at(99), false, true), (at(100), true, false), (at(250), false, false)];
        let beyond = (at(300), true, false);
        let bin = |arrivals, good, refused| Bin { arrivals, good, refused };
        let expected = [bin(2, 1, 1), bin(1, 1, 0), bin(1, 0, 0)];
        assert_eq!(bins_of(at(300), all.into_iter().chain([beyond])), expected);
        assert_eq!(bins_of(at(250), all.into_iter()).len(), 3);
    }

    #[test]
    fn a_server_without_losses_has_recovered_at_once() {
        assert_eq!(ms(&bins((0..40).map(|_| 20))), Some(0));
        assert_eq!(ms(&bins((0..40).map(|_| 19))), Some(0), "95 % is enough");
    }

    #[test]
    fn time_counts_to_the_second_that_is_well() {
        // 0.7 s without good replies. The second tolerates the loss of half a bin.
        assert_eq!(ms(&bins((0..40).map(|at| if at < 7 { 0 } else { 20 }))), Some(700));
        assert_eq!(
            ms(&bins((0..40).map(|at| if at < 7 {
                0
            } else if at == 7 {
                10
            } else {
                20
            }))),
            Some(700)
        );
        assert_eq!(
            ms(&bins((0..40).map(|at| if at < 7 {
                0
            } else if at == 7 {
                9
            } else {
                20
            }))),
            Some(800)
        );
    }

    #[test]
    fn a_moment_of_health_is_no_recovery() {
        let relapsing = bins((0..60).map(|at| if (20..32).contains(&at) || at > 50 { 20 } else { 0 }));
        assert_eq!(ms(&relapsing), None, "the last window begins at a bin that is unwell");
        let relapsing = bins((0..60).map(|at| if (20..32).contains(&at) || at >= 50 { 20 } else { 0 }));
        assert_eq!(ms(&relapsing), Some(5_000));
        assert_eq!(ms(&bins((0..60).map(|_| 18))), None);
        assert_eq!(ms(&[]), None);
        assert_eq!(ms(&[Bin::default(); 20]), None, "nothing came, so nothing is known");
    }
}
