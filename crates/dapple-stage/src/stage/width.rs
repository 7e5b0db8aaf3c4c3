//! The number of requests that a stage serves at a time, found by measuring.
//!
//! Up to some width, more requests at a time raise throughput; beyond it only latency grows, and
//! then throughput falls (Gribble, Figures 10 and 15). With `w` in service that take `L` each, the
//! throughput is `w / L`, so latency alone determines it, even when fewer requests arrive than the
//! stage could serve. From window to window the controller changes the width by about an eighth (at
//! first it doubles it), and compares the throughput. If the throughput changed by at least half
//! the proportion by which the width changed, the controller raises the width; otherwise it lowers
//! it. So the width oscillates around the point where more of it stops paying.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// How many requests a stage may serve at a time.
///
/// ```
/// use dapple_stage::Width;
///
/// assert_eq!(Width::fixed(8), Width::from(8));
/// let width = Width::adaptive(2..=64); // found by measuring
/// # let _ = width;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Width {
    pub(crate) min: usize,
    pub(crate) max: usize,
}

impl Width {
    /// Always this many, at least 1.
    pub fn fixed(width: usize) -> Width {
        Width { min: width.max(1), max: width.max(1) }
    }

    /// Between two bounds, from measured latency and throughput: more while that raises throughput,
    /// less if it only raises latency.
    pub fn adaptive(bounds: RangeInclusive<usize>) -> Width {
        let min = (*bounds.start()).max(1);
        Width { min, max: (*bounds.end()).max(min) }
    }
}

impl From<usize> for Width {
    fn from(width: usize) -> Width {
        Width::fixed(width)
    }
}

impl From<RangeInclusive<usize>> for Width {
    fn from(bounds: RangeInclusive<usize>) -> Width {
        Width::adaptive(bounds)
    }
}

/// Finds the width. A plain state machine that learns of each request's end.
#[derive(Debug)]
pub(crate) struct WidthControl {
    bounds: Width,
    width: usize,
    window: Window,
    /// The previous width, and its throughput per second.
    before: Option<(usize, f64)>,
    rising: bool,
    /// More has always helped so far: the width doubles.
    fast: bool,
    /// How many requests started under the previous width must still end.
    settling: usize,
}

#[derive(Debug, Default)]
struct Window {
    started: Option<Instant>,
    ended: u32,
    /// How many of these ended while others waited for service.
    busy: u32,
    latency: Duration,
}

impl WidthControl {
    /// `None` for a fixed width.
    pub(crate) fn new(bounds: Width) -> Option<WidthControl> {
        (bounds.min < bounds.max).then(|| WidthControl {
            width: bounds.min,
            bounds,
            window: Window::default(),
            before: None,
            rising: true,
            fast: true,
            settling: 0,
        })
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Records the end of a request that took `latency` in service; `busy` says whether the width
    /// was used up then.
    pub(crate) fn on_end(&mut self, now: Instant, latency: Duration, busy: bool) {
        if self.settling > 0 {
            self.settling -= 1;
            return;
        }
        let window = &mut self.window;
        let started = *window.started.get_or_insert(now);
        window.ended += 1;
        window.busy += u32::from(busy);
        window.latency += latency;
        let enough = window.ended as usize >= self.width.saturating_mul(2).max(ENDED_MIN);
        if !enough || now.saturating_duration_since(started) < WINDOW_MIN {
            return;
        }
        let window = std::mem::take(window);
        // A width that was not used up says nothing about a larger one.
        if window.busy * 4 >= window.ended * 3 {
            self.close(window.latency.as_secs_f64() / f64::from(window.ended));
        } else {
            self.before = None;
        }
    }

    fn close(&mut self, latency_s: f64) {
        let throughput = self.width as f64 / latency_s.max(1e-9);
        if let Some((width, then)) = self.before.filter(|(width, _)| *width != self.width) {
            let gain = (throughput - then) / then;
            let change = (self.width as f64 - width as f64) / width as f64;
            self.rising = gain / change >= WORTH;
        }
        self.before = Some((self.width, throughput));
        self.fast &= self.rising;
        let step = if self.fast { self.width } else { (self.width / 8).max(1) };
        let wanted = if self.rising { self.width.saturating_add(step) } else { self.width.saturating_sub(step) };
        let wanted = wanted.clamp(self.bounds.min, self.bounds.max);
        if wanted == self.width {
            // At a bound: try the other direction next, because load and costs may have changed.
            self.rising = !self.rising;
        } else {
            // Requests in service now began with another width; wait for the end of twice that
            // number.
            self.settling = self.width.max(wanted).saturating_mul(2);
        }
        self.width = wanted;
    }
}

/// A window has at least this many requests,
const ENDED_MIN: usize = 24;
/// and takes at least this long.
const WINDOW_MIN: Duration = Duration::from_millis(10);
/// The controller raises the width if the throughput grows by at least this part of the width's
/// growth.
const WORTH: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Serves in a closed loop; `latency` maps the number in service at a start to seconds. Returns
    /// the widths of the second half: the lowest and highest tenth, and the maximum.
    fn simulate(control: &mut WidthControl, requests: usize, latency: impl Fn(usize) -> f64) -> (usize, usize, usize) {
        // The clock starts again.
        control.window = Window::default();
        let start = Instant::now();
        let (mut clock, mut in_service) = (0.0, BTreeMap::new());
        let mut widths = Vec::new();
        for n in 0..requests {
            while in_service.len() < control.width() {
                // A little noise, the same in each run.
                let noise =
                    1.0 + 0.05 * ((n + in_service.len()).wrapping_mul(2_654_435_761) >> 16 & 127) as f64 / 128.0;
                let takes = latency(in_service.len() + 1) * noise;
                let end_ns = ((clock + takes) * 1e9) as u64;
                in_service.insert((end_ns, n, in_service.len()), takes);
            }
            let ((end_ns, ..), took) = in_service.pop_first().unwrap();
            clock = end_ns as f64 / 1e9;
            let busy = in_service.len() + 1 >= control.width();
            control.on_end(start + Duration::from_nanos(end_ns), Duration::from_secs_f64(took), busy);
            if n > requests / 2 {
                widths.push(control.width());
            }
        }
        widths.sort_unstable();
        (widths[widths.len() / 10], widths[widths.len() * 9 / 10], widths[widths.len() - 1])
    }

    fn between(min: usize, max: usize) -> WidthControl {
        WidthControl::new(Width::adaptive(min..=max)).unwrap()
    }

    #[test]
    fn it_stays_about_what_a_disk_can_take() {
        // 40 at a time in 10 ms (Gribble, 4.1); the rest waits.
        let (least, most, _) = simulate(&mut between(1, 1_000), 100_000, |n| 0.010 * (n as f64 / 40.0).max(1.0));
        assert!(least >= 25 && most <= 60, "{least} to {most}");
    }

    #[test]
    fn it_stays_about_the_cores_where_requests_compute() {
        let (least, most, _) = simulate(&mut between(1, 256), 50_000, |n| 0.002 * (n as f64 / 2.0).max(1.0));
        assert!(least >= 1 && most <= 5, "{least} to {most}");
    }

    #[test]
    fn it_does_not_go_where_throughput_falls() {
        // Above 30 it thrashes: latency grows with the square.
        let (least, most, _) = simulate(&mut between(2, 500), 100_000, |n| 0.005 * (n as f64 / 30.0).max(1.0).powi(2));
        assert!(least >= 18 && most <= 45, "{least} to {most}");
    }

    #[test]
    fn it_takes_all_there_is_where_latency_does_not_grow() {
        let (least, _, most) = simulate(&mut between(1, 64), 50_000, |_| 0.010);
        assert!(least >= 48 && most == 64, "{least} to {most}");
    }

    #[test]
    fn it_is_quickly_at_a_large_width() {
        let mut control = between(1, 1_000);
        simulate(&mut control, 6_000, |_| 0.050);
        assert!(control.width() > 500, "{}", control.width());
    }

    #[test]
    fn it_follows_a_change() {
        let mut control = between(1, 400);
        for knee in [20.0, 120.0, 8.0] {
            let (least, most, _) = simulate(&mut control, 120_000, |n| 0.010 * (n as f64 / knee).max(1.0));
            assert!(least as f64 > knee * 0.5 && (most as f64) < knee * 1.7, "{least} to {most} at {knee}");
        }
    }

    #[test]
    fn the_largest_bounds_do_not_overflow() {
        for (min, max) in [(u32::MAX as usize, usize::MAX), (usize::MAX - 1, usize::MAX)] {
            let mut control = between(min, max);
            let now = Instant::now();
            (0..100).for_each(|n| control.on_end(now + Duration::from_secs(n), Duration::from_millis(1), true));
            assert_eq!(control.width(), min);
            // For a window of this many.
            control.close(0.001);
            assert_eq!(control.width(), min.saturating_mul(2));
        }
    }

    #[test]
    fn it_does_not_move_without_load() {
        let mut control = between(4, 64);
        let mut now = Instant::now();
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            control.on_end(now, Duration::from_millis(1), false);
        }
        assert_eq!(control.width(), 4);
    }
}
