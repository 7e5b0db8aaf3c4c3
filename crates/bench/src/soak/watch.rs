//! The watchdog: after a time without progress it ends the process, and prints all it knows.

use super::book::Book;
use super::process::Census;
use dapple_sched::Handle;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The watched state, shared with the watchdog's thread.
#[derive(Clone, Default)]
pub(crate) struct Watch {
    scene: Arc<Mutex<Scene>>,
}

#[derive(Default)]
struct Scene {
    /// The current phase, in words.
    phase: String,
    /// How to repeat it.
    repeat: String,
    life: Option<(Arc<Book>, Handle)>,
    changes: u64,
}

impl Watch {
    /// Starts the watchdog. Its thread lives as long as the process.
    pub(crate) fn start() -> std::io::Result<Watch> {
        let watch = Watch::default();
        let own = watch.clone();
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || own.keep_watch())?;
        Ok(watch)
    }

    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sets the current phase. Counts as progress.
    pub(crate) fn phase(&self, phase: impl Into<String>) {
        let mut scene = self.scene();
        scene.phase = phase.into();
        scene.changes += 1;
    }

    /// Watches a new runtime.
    pub(crate) fn life(&self, repeat: String, book: &Arc<Book>, handle: &Handle) {
        let mut scene = self.scene();
        scene.repeat = repeat;
        scene.life = Some((book.clone(), handle.clone()));
    }

    /// Releases everything of the runtime.
    pub(crate) fn forget(&self) {
        let life = self.scene().life.take();
        drop(life);
    }

    fn keep_watch(&self) {
        let (mut progress, mut since) = (self.progress(), Instant::now());
        loop {
            std::thread::sleep(LOOK);
            let now = self.progress();
            if now != progress {
                (progress, since) = (now, Instant::now());
            } else if since.elapsed() >= PATIENCE {
                self.give_up();
            }
        }
    }

    fn progress(&self) -> (u64, u64) {
        let scene = self.scene();
        (scene.changes, scene.life.as_ref().map_or(0, |(book, _)| book.progress()))
    }

    fn give_up(&self) -> ! {
        let scene = self.scene();
        let mut text = format!("soak: nothing has happened for {} s: {}\n", PATIENCE.as_secs(), scene.phase);
        if let Ok(census) = Census::take() {
            text.push_str(&format!("{census:?}\n"));
        }
        if let Some((book, handle)) = &scene.life {
            text.push_str(&format!("outstanding:\n{}", book.outstanding_text()));
            for problem in book.problems() {
                text.push_str(&format!("  {problem}\n"));
            }
            let stats = handle.stats();
            text.push_str(&format!("{} tasks live, {} posts from outside\n", stats.tasks_live, stats.posts_outside));
            for (worker, stats) in stats.workers.iter().enumerate() {
                text.push_str(&format!("worker {worker}: {stats:?}\n"));
            }
            text.push_str(&format!("{}\n", handle.dump()));
        }
        text.push_str(&format!("repeat it: {}\n", scene.repeat));
        let _ = std::io::stderr().write_all(text.as_bytes());
        // Without unwinding, which a hang would stop too.
        std::process::exit(1);
    }
}

/// The longest time without progress.
const PATIENCE: Duration = Duration::from_secs(10);

/// The interval of the watchdog's checks.
const LOOK: Duration = Duration::from_millis(250);
