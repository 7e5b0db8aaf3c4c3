//! Policies of the program's own: the guarantees of the scheduler under each, even under those that
//! give wrong answers.
//!
//! Seen to catch: an age bound that skips a pick in which the policy was asked; a board that does
//! not report stolen colors; a key with a serial number that is not compared.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dapple_sched::{Color, Colored, Handle, Policy, Priority, Runnable, RunnableKey, Runtime, SeededRandom, yield_now};

use crate::support::{Gate, collector};

/// A policy made of its state and its way to pick.
struct By<P> {
    waiting: BTreeMap<RunnableKey, Runnable>,
    pick: P,
}

fn by<P>(pick: P) -> Box<dyn Policy>
where
    P: FnMut(&BTreeMap<RunnableKey, Runnable>) -> Option<RunnableKey> + 'static,
{
    Box::new(By { waiting: BTreeMap::new(), pick })
}

impl<P: FnMut(&BTreeMap<RunnableKey, Runnable>) -> Option<RunnableKey>> Policy for By<P> {
    fn queued(&mut self, color: &Runnable) {
        assert!(self.waiting.insert(color.key, color.clone()).is_none(), "it was known");
        assert!(color.queued > 0);
    }

    fn changed(&mut self, color: &Runnable) {
        let before = self.waiting.insert(color.key, color.clone()).expect("it is known");
        assert!(before.queued <= color.queued && before.color_id == color.color_id);
    }

    fn removed(&mut self, key: RunnableKey) {
        self.waiting.remove(&key);
    }

    fn pick(&mut self) -> Option<RunnableKey> {
        let key = (self.pick)(&self.waiting);
        key.map(|key| self.waiting.remove(&key));
        key
    }
}

type Make = fn() -> Box<dyn Policy>;

/// Sensible ones, and hostile ones.
const POLICIES: [(&str, Make); 8] = [
    ("random", || Box::new(SeededRandom::new(1))),
    ("newest", || by(|waiting| waiting.keys().next_back().copied())),
    ("longest", || by(|waiting| waiting.values().max_by_key(|color| color.queued).map(|color| color.key))),
    ("largest id", || by(|waiting| waiting.values().max_by_key(|color| color.color_id).map(|color| color.key))),
    ("none", || by(|_| None)),
    ("stale", || {
        let mut first = None;
        by(move |waiting| {
            first = first.or(waiting.keys().next().copied());
            first
        })
    }),
    ("now and then", || {
        let mut asked = 0;
        by(move |waiting| {
            asked += 1;
            waiting.keys().next_back().copied().filter(|_| asked % 3 == 0)
        })
    }),
    ("panics", || {
        let mut asked = 0;
        by(move |waiting| {
            asked += 1;
            assert!(asked < 10, "as the test says");
            waiting.keys().next_back().copied()
        })
    }),
];

fn runtime(workers: usize, make: impl Fn(usize) -> Box<dyn Policy> + Send + Sync + 'static) -> Runtime {
    Runtime::builder().workers(workers).policy(make).build().unwrap()
}

/// Runs a closure on a worker without other work, and after it the closure's posts.
fn from_inside(f: impl FnOnce() + Send + 'static) {
    let (tx, done) = collector();
    Color::new().post(move || {
        f();
        tx.send(()).unwrap();
    });
    done.next();
}

#[test]
fn c7_every_policy_keeps_the_age_bound() {
    const VICTIMS: usize = 10;
    const FLOOD: usize = 50;
    for (name, make) in POLICIES {
        let runtime = Runtime::builder().workers(1).policy(move |_| make()).panic_handler(|_| ()).build().unwrap();
        let _entered = runtime.enter();
        let (turns, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (tx, seen) = collector();
        let (counts, stops) = (turns.clone(), stop.clone());
        from_inside(move || {
            for victim in 0..VICTIMS {
                let (turns, tx) = (counts.clone(), tx.clone());
                Color::new().post(move || tx.send((victim, turns.fetch_add(1, Ordering::Relaxed))).unwrap());
            }
            for _ in 0..FLOOD {
                let (turns, stop) = (counts.clone(), stops.clone());
                drop(dapple_sched::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        turns.fetch_add(1, Ordering::Relaxed);
                        yield_now().await;
                    }
                }));
            }
        });
        let seen = seen.all();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(seen.len(), VICTIMS);
        for (victim, turns) in seen {
            // The default, which follows a policy that panics, has other bounds.
            let bound = if name == "panics" { 16 + 2 * (VICTIMS + FLOOD) } else { 32 * (victim + 1) };
            assert!(turns <= bound, "{name}: victim {victim} waited for {turns} turns");
        }
        if name == "newest" {
            // They depended on the policy.
            assert!(turns.load(Ordering::Relaxed) >= 32 * (VICTIMS - 1));
        }
    }
}

/// The order in which one worker runs a hundred colors, each of which posts to itself when it runs.
/// So no color has two waiting callbacks, of which a turn would run one or both, depending on the
/// time.
fn order(seed: u64) -> Vec<usize> {
    const COLORS: usize = 100;
    let runtime = runtime(1, move |_| Box::new(SeededRandom::new(seed)));
    let _entered = runtime.enter();
    let (tx, seen) = collector();
    fn visit(color: Color, at: usize, left: usize, tx: std::sync::mpsc::Sender<usize>) {
        tx.send(at).unwrap();
        if left > 0 {
            color.clone().post(move || visit(color, at, left - 1, tx));
        }
    }
    from_inside(move || {
        for at in 0..COLORS {
            let (color, tx) = (Color::new(), tx.clone());
            color.clone().post(move || visit(color, at, 3, tx));
        }
    });
    seen.all()
}

#[test]
fn a_seed_gives_one_order_and_another_seed_another() {
    let first = order(1);
    assert_eq!(first.len(), 400);
    (0..20).for_each(|_| assert_eq!(order(1), first));
    assert_ne!(first, order(2));
    assert!(!first[..100].is_sorted(), "that would be the default");
}

#[test]
fn c2_order_and_c7_liveness_hold_under_every_policy() {
    const COLORS: usize = 24;
    const EACH: u64 = 60;
    for (name, make) in POLICIES {
        for workers in [1, 2, 4, 8] {
            let runtime =
                Runtime::builder().workers(workers).policy(move |_| make()).panic_handler(|_| ()).build().unwrap();
            let _entered = runtime.enter();
            let receivers: Vec<_> = (0..COLORS).map(|_| Colored::new(vec![0u64; COLORS])).collect();
            let (tx, done) = collector::<()>();
            for sender in 0..COLORS {
                let (receivers, tx) = (receivers.clone(), tx.clone());
                drop(dapple_sched::spawn(async move {
                    for n in 1..=EACH {
                        for (at, receiver) in receivers.iter().enumerate() {
                            let check = move |last: &mut Vec<u64>| {
                                assert_eq!(last[sender] + 1, n, "out of order");
                                last[sender] = n;
                            };
                            if at % 5 == sender % 5 { receiver.with(check).await } else { receiver.post(check) }
                        }
                        yield_now().await;
                    }
                    drop(tx);
                }));
            }
            drop(tx);
            done.all();
            for receiver in receivers {
                let all = receiver.with_blocking(|last| last.iter().all(|&n| n == EACH));
                assert!(all, "{name}: something was lost");
            }
        }
    }
}

#[test]
fn a_policy_knows_waiting_and_stolen_colors() {
    // `By` checks the reports to it, and its panics are counted.
    for name in ["largest id", "stale"] {
        let make = POLICIES.iter().find(|(of, _)| *of == name).unwrap().1;
        let panics = Arc::new(AtomicUsize::new(0));
        let counted = panics.clone();
        let known = Arc::new(Mutex::new([0; 4]));
        let notes = known.clone();
        let runtime = Runtime::builder()
            .workers(4)
            .policy(move |worker| {
                Box::new(Known { inner: make(), waiting: HashSet::new(), worker, notes: notes.clone() })
            })
            .panic_handler(move |panic| {
                eprintln!("{}", panic.message);
                counted.fetch_add(1, Ordering::Relaxed);
            })
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let (tx, done) = collector::<()>();
        let colors: Vec<Color> = (0..200).map(|_| Color::new()).collect();
        for n in 0..crate::support::rounds(20_000) {
            let (tx, again) = (tx.clone(), colors[(n * 7) % colors.len()].clone());
            let priority = Priority::new((n % 8) as u8);
            colors[n % colors.len()].post(move || {
                (0..n % 200).for_each(|_| std::hint::spin_loop());
                again.post_with(priority, move || drop(tx));
            });
        }
        drop(tx);
        done.all();
        // All have run, so each knows only colors that come now.
        for worker in (0..4).cycle().take(200) {
            let (tx, done) = collector();
            Handle::current().new_color_at(worker).post(move || tx.send(()).unwrap());
            done.next();
        }
        assert_eq!(panics.load(Ordering::Relaxed), 0);
        assert!(runtime.handle().stats().workers.iter().any(|worker| worker.colors_stolen > 0));
        let known = known.lock().unwrap();
        assert!(known.iter().all(|&known| known <= 1), "{name}: {known:?}");
    }
}

/// Counts the colors that had been reported to a policy when it was last asked, and not their end.
struct Known {
    inner: Box<dyn Policy>,
    waiting: HashSet<RunnableKey>,
    worker: usize,
    notes: Arc<Mutex<[usize; 4]>>,
}

impl Policy for Known {
    fn queued(&mut self, color: &Runnable) {
        self.waiting.insert(color.key);
        self.inner.queued(color);
    }

    fn changed(&mut self, color: &Runnable) {
        self.inner.changed(color);
    }

    fn removed(&mut self, key: RunnableKey) {
        self.waiting.remove(&key);
        self.inner.removed(key);
    }

    fn pick(&mut self) -> Option<RunnableKey> {
        self.notes.lock().unwrap()[self.worker] = self.waiting.len();
        let key = self.inner.pick();
        key.map(|key| self.waiting.remove(&key));
        key
    }
}

#[test]
fn a_policy_sees_what_it_needs() {
    let told = Arc::new(Mutex::new(HashMap::new()));
    let notes = told.clone();
    let runtime = runtime(1, move |_| {
        let notes = notes.clone();
        by(move |waiting| {
            for color in waiting.values() {
                notes.lock().unwrap().insert(color.color_id, color.clone());
            }
            // The newest, so that a post to an older one is a post to a color that the policy
            // knows.
            waiting.keys().next_back().copied()
        })
    });
    let _entered = runtime.enter();
    let (color, grows, outside) = (Color::new(), Color::new(), Color::named(77));
    let ids = (color.id(), grows.id(), outside.id());
    let (tx, done) = collector::<()>();
    let (inside, gate) = (Gate::default(), Gate::default());
    let (opens, waits) = (inside.clone(), gate.clone());
    let kept = tx.clone();
    Color::new().post(move || {
        color.post(move || drop(kept));
        grows.post(|| ());
        Color::new().post(move || {
            grows.post(|| ());
            color.post_with(Priority::new(5), || ());
            color.post(|| ());
        });
        opens.open();
        waits.wait();
    });
    inside.wait();
    outside.post(move || drop(tx));
    gate.open();
    done.all();
    let told = told.lock().unwrap();
    let seen = &told[&ids.0];
    assert_eq!((seen.queued, seen.priority, seen.from_outside), (3, Priority::new(5), false));
    assert_eq!((told[&ids.1].queued, told[&ids.1].priority), (2, Priority::NORMAL));
    let seen = &told[&ids.2];
    assert_eq!((seen.color_id, seen.queued, seen.priority, seen.from_outside), (77, 1, Priority::NORMAL, true));
}

#[test]
fn a_policy_belongs_to_its_worker() {
    struct OnThread(Box<dyn Policy>, usize, std::thread::ThreadId, std::sync::mpsc::Sender<usize>);
    impl OnThread {
        fn check(&self) {
            assert_eq!(std::thread::current().id(), self.2);
            assert_eq!(Handle::current().worker_index(), Some(self.1));
        }
    }
    impl Policy for OnThread {
        fn queued(&mut self, color: &Runnable) {
            self.check();
            self.0.queued(color);
        }
        fn removed(&mut self, key: RunnableKey) {
            self.check();
            self.0.removed(key);
        }
        fn pick(&mut self) -> Option<RunnableKey> {
            self.check();
            // It may post.
            Color::new().post(|| ());
            self.0.pick()
        }
    }
    impl Drop for OnThread {
        fn drop(&mut self) {
            self.check();
            self.3.send(self.1).unwrap();
        }
    }
    let (tx, dropped) = collector();
    let tx = Mutex::new(tx);
    let runtime = runtime(3, move |worker| {
        let tx = tx.lock().unwrap().clone();
        Box::new(OnThread(Box::new(SeededRandom::new(1)), worker, std::thread::current().id(), tx))
    });
    let tasks: Vec<_> = (0..300).map(|_| runtime.spawn(yield_now())).collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    // Each pick posts, so there is always a color to pick: a shutdown ends that as well.
    drop(runtime);
    let mut dropped = dropped.all();
    dropped.sort_unstable();
    assert_eq!(dropped, [0, 1, 2]);
}

#[test]
fn c8_a_policy_that_panics_is_reported_and_replaced() {
    struct Worst(usize);
    impl Policy for Worst {
        fn queued(&mut self, _color: &Runnable) {}
        fn removed(&mut self, _key: RunnableKey) {}
        fn pick(&mut self) -> Option<RunnableKey> {
            self.0 += 1;
            assert!(self.0 < 5, "no more");
            None
        }
    }
    impl Drop for Worst {
        fn drop(&mut self) {
            panic!("not even this");
        }
    }
    let (tx, messages) = collector();
    let tx = Mutex::new(tx);
    let made = AtomicUsize::new(0);
    let runtime = Runtime::builder()
        .workers(1)
        .policy(|_| Box::new(Worst(0)))
        .panic_handler(move |panic| tx.lock().unwrap().send(panic.message.to_owned()).unwrap())
        .build()
        .unwrap();
    for _ in 0..20 {
        runtime.block_on(runtime.spawn(yield_now())).unwrap();
    }
    assert_eq!(messages.next(), "the policy of worker 0 is replaced by the default: no more");
    assert_eq!(messages.next(), "the policy of worker 0 is replaced by the default: not even this");
    drop(runtime);
    // One that cannot be made.
    let runtime = Runtime::builder()
        .workers(1)
        .policy(move |_| panic!("cannot make {}", made.fetch_add(1, Ordering::Relaxed)))
        .panic_handler(|_| ())
        .build()
        .unwrap();
    runtime.block_on(runtime.spawn(yield_now())).unwrap();
}
