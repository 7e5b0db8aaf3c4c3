//! The settings by which workers share their time, and their ranges.

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::worker::clock::SLICE_NS;

/// The settings of one runtime. Each worker has a copy next to the counters that it compares with
/// them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// A busy worker polls the kernel about this often.
    pub(crate) poll_every_ns: u64,
    /// The time for which one color may run while others wait.
    pub(crate) slice_ns: u64,
    /// The share of work from outside in the picks, if both kinds wait.
    pub(crate) event_share: Share,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning { poll_every_ns: POLL_EVERY_NS, slice_ns: SLICE_NS, event_share: Share::HALF }
    }
}

/// Settings as the program gave them, not yet checked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) poll_interval: Option<Duration>,
    pub(crate) time_slice: Option<Duration>,
    pub(crate) event_share_percent: Option<u8>,
}

impl Asked {
    /// # Errors
    /// If one of them is out of range; the message names the range.
    pub(crate) fn check(self) -> io::Result<Tuning> {
        let default = Tuning::default();
        let poll_every_ns = match self.poll_interval {
            Some(interval) => in_range("poll interval", interval, POLL_INTERVALS)?,
            None => default.poll_every_ns,
        };
        let slice_ns = match self.time_slice {
            Some(slice) => in_range("time slice", slice, TIME_SLICES)?,
            None => default.slice_ns,
        };
        let event_share = match self.event_share_percent {
            Some(percent) => Share::of_percent(percent)?,
            None => default.event_share,
        };
        Ok(Tuning { poll_every_ns, slice_ns, event_share })
    }
}

fn in_range(what: &str, value: Duration, range: RangeInclusive<Duration>) -> io::Result<u64> {
    if range.contains(&value) {
        return Ok(value.as_nanos() as u64);
    }
    Err(refused(format!("a {what} of {value:?}: choose one from {:?} to {:?}", range.start(), range.end())))
}

fn refused(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// A share of all picks, in 256ths; neither none nor all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share(u8);

impl Share {
    pub(crate) const HALF: Share = Share(128);

    /// One pick in `count`, a power of two up to 128.
    pub(crate) const fn one_of(count: u32) -> Share {
        Share((256 / count) as u8)
    }

    fn of_percent(percent: u8) -> io::Result<Share> {
        if !(1..=99).contains(&percent) {
            return Err(refused(format!("an event share of {percent} %: choose one from 1 to 99")));
        }
        Ok(Share(((u32::from(percent) * 256 + 50) / 100) as u8))
    }

    /// The rest of the picks.
    pub(crate) fn rest(self) -> Share {
        // A share is never 0.
        Share(self.0.wrapping_neg())
    }
}

/// Decides which of two kinds goes next: one of them has a share of the picks, evenly spaced, and
/// the other has the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit(u8);

impl Credit {
    /// The kind with the share goes next.
    pub(crate) const DUE: Credit = Credit(u8::MAX);

    /// The kind with the share has just had a pick.
    pub(crate) const SPENT: Credit = Credit(0);

    /// Whether the kind with the share goes, if both kinds wait.
    #[inline]
    pub(crate) fn goes(&mut self, share: Share) -> bool {
        let (sum, goes) = self.0.overflowing_add(share.0);
        self.0 = sum;
        goes
    }

    /// Notes that only one kind waits, and goes. The other one goes next, unless the kind with the
    /// share has had its pick (`shared_goes`) and is not due again.
    #[inline]
    pub(crate) fn alone(&mut self, shared_goes: bool) {
        *self = if shared_goes { Credit::SPENT } else { Credit::DUE };
    }
}

impl Default for Credit {
    fn default() -> Credit {
        Credit::DUE
    }
}

/// The default of the poll interval.
const POLL_EVERY_NS: u64 = 50_000;

/// Shorter intervals cannot be kept, because turns are timed about every 32 us. With longer ones, a
/// worker that is not stuck would postpone the alarm too late.
const POLL_INTERVALS: RangeInclusive<Duration> = Duration::from_micros(10)..=Duration::from_millis(1);

/// Shorter slices cannot be kept, because the clock is read about every 32 us; a longer turn counts
/// as a long callback, after which the monitor checks more often.
const TIME_SLICES: RangeInclusive<Duration> = Duration::from_micros(50)..=Duration::from_millis(1);

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use super::*;

    /// Of a hundred picks, the number of the kind with the share.
    fn picks(percent: u8) -> usize {
        let share = Share::of_percent(percent).expect("it is in range");
        let mut credit = Credit::SPENT;
        (0..1_000).filter(|_| credit.goes(share)).count()
    }

    #[test]
    fn a_share_is_kept_to_and_never_none_or_all() {
        assert_eq!(Share::of_percent(50).ok(), Some(Share::HALF));
        for percent in 1..=99 {
            let expected = usize::from(percent) * 10;
            assert!(picks(percent).abs_diff(expected) <= 6, "{percent} %: {}", picks(percent));
            assert!((1..1_000).contains(&picks(percent)));
        }
        assert_eq!(Share::of_percent(20).map(Share::rest).ok(), Share::of_percent(80).ok());
    }

    #[test]
    fn settings_out_of_range_are_refused_with_the_range() {
        let text = |asked: Asked| asked.check().expect_err("it is out of range").to_string();
        let micros = |micros| Some(Duration::from_micros(micros));
        for poll_interval in [micros(0), micros(9), micros(1_001)] {
            let text = text(Asked { poll_interval, ..Asked::default() });
            assert!(text.ends_with("choose one from 10µs to 1ms"), "{text}");
        }
        for time_slice in [micros(49), Some(Duration::MAX)] {
            let text = text(Asked { time_slice, ..Asked::default() });
            assert!(text.ends_with("choose one from 50µs to 1ms"), "{text}");
        }
        for percent in [0, 100, 255] {
            let text = text(Asked { event_share_percent: Some(percent), ..Asked::default() });
            assert!(text.ends_with("choose one from 1 to 99"), "{text}");
        }
        let default = Asked::default().check().expect("the defaults are in range");
        assert_eq!((default.poll_every_ns, default.slice_ns), (50_000, 500_000));
    }
}
