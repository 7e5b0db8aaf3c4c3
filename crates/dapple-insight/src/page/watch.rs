//! The bottleneck as metrics, for Prometheus.
//!
//! A scrape shows the last recording, and begins the next one, of a tenth of a second. So it costs what a recording costs
//! for that long, and nothing where no one scrapes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple_io::time::sleep;
use dapple_sched::{Color, Handle};
use dapple_serve::metrics::exposition::{Exposition, Kind};

use super::{PageError, in_pool, shared};
use crate::{Insight, Snapshot, Verdict, Waits};

/// The bottleneck of a runtime as metrics; see [`watch`].
pub struct Watch(Arc<Inner>);

struct Inner {
    insight: Arc<Insight>,
    last: Mutex<Option<Arc<Snapshot>>>,
    records: AtomicBool,
}

/// Watches the current runtime for a page of metrics.
///
/// ```
/// # let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// let watch = dapple_insight::watch().expect("it has no other observer");
/// println!("{}", watch.text());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// [`PageError::HasObserver`]; or no runtime is current, which is [`PageError::Listen`].
pub fn watch() -> Result<Watch, PageError> {
    let handle = Handle::try_current().ok_or_else(|| PageError::Listen(std::io::ErrorKind::NotFound.into()))?;
    let insight = shared(&handle).map_err(|_| PageError::HasObserver)?;
    let watch = Watch(Arc::new(Inner { insight, last: Mutex::default(), records: AtomicBool::new(false) }));
    watch.begin();
    Ok(watch)
}

impl Watch {
    /// The metrics of the last recording, in Prometheus text format; begins the next one. Empty before the first has ended.
    pub fn text(&self) -> String {
        self.begin();
        let last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.map_or_else(String::new, |snapshot| text(&snapshot))
    }

    fn begin(&self) {
        if self.0.records.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = self.0.clone();
        drop(Color::new().spawn_background(async move {
            // A page that records is first; the last recording stays.
            if let Ok(mut session) = inner.insight.begin_shared() {
                sleep(RECORD).await;
                session.stop();
                let snapshot = in_pool(move || session.end().snapshot()).await;
                if let Some(snapshot) = snapshot {
                    *inner.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(snapshot));
                }
            }
            inner.records.store(false, Ordering::Release);
        }));
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

fn text(snapshot: &Snapshot) -> String {
    let mut out = Exposition::new();
    let (kind, name) = bound_by(&snapshot.verdict);
    let help = "The bottleneck by the last recording: its kind, and the color or line.";
    out.family("dapple_insight_bottleneck", Kind::Gauge, help);
    out.sample("dapple_insight_bottleneck", &[("kind", kind), ("name", name)], 1.0);
    let families = || snapshot.families.iter().take(FAMILIES_MAX);
    let name = "dapple_insight_color_busy_ratio";
    out.family(name, Kind::Gauge, "The share of time in which the busiest color of a family ran one thing at a time.");
    for family in families() {
        let kind = if family.is_state { "state" } else { "callbacks" };
        out.sample(name, &[("color", &family.name), ("kind", kind)], family.hottest);
    }
    let name = "dapple_insight_waiting";
    out.family(name, Kind::Gauge, "Callbacks that waited at a time, on the average, by cause.");
    let mut sum = Waits::default();
    snapshot.families.iter().for_each(|family| crate::snapshot::add(&mut sum, family.waits));
    let causes = [
        ("same_color", sum.same_color_ns),
        ("other_colors", sum.other_colors_ns),
        ("worker", sum.worker_ns),
        ("readers", sum.readers_ns),
        ("several_colors", sum.several_ns),
    ];
    for (cause, ns) in causes {
        out.sample(name, &[("cause", cause)], ns as f64 / snapshot.elapsed_ns.max(1) as f64);
    }
    out.finish()
}

fn bound_by(verdict: &Verdict) -> (&'static str, &str) {
    match verdict {
        Verdict::Color { family, .. } => ("color", family),
        Verdict::Blocked { callback, .. } => ("blocked", callback),
        Verdict::LockStep { one, .. } => ("lock_step", one),
        Verdict::Readers { family, .. } => ("readers", family),
        Verdict::Several { family, .. } => ("several", family),
        Verdict::Outside { after, .. } => ("outside", after),
        Verdict::Workers { .. } => ("workers", ""),
        Verdict::Idle { .. } => ("none", ""),
    }
}

const RECORD: Duration = Duration::from_millis(100);
const FAMILIES_MAX: usize = 10;
