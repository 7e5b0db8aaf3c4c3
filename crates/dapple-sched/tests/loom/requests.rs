//! Several colors at once: acceptance in one step, completion, cancel, shutdown, and the memory of
//! a request.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use dapple_sched::model::{Model, ModelWorker};
use dapple_sched::{Color, Colored, when};
use loom::thread;

use crate::support::{Crossing, Event, Flag, Log, Wait, block_on, check, drain, finish, in_order, model, work_until};

/// Two colors, each with a log, in the form that these models use.
#[derive(Clone)]
struct Pair {
    colors: [Color; 2],
    logs: [Log; 2],
}

impl Pair {
    fn new(model: &Model, homes: [usize; 2]) -> Pair {
        Pair { colors: homes.map(|home| model.handle().new_color_at(home)), logs: [Log::new(), Log::new()] }
    }

    /// Runs each color once, so that its callbacks are known to be short.
    fn warm_up(&self, model: &Model) {
        self.colors.iter().for_each(|color| color.post(|| ()));
        drain(model);
    }

    /// The same, on a worker that has measured a turn of each: the next ones end as most turns do.
    fn run_shortly(&self, worker: &ModelWorker<'_>) {
        self.colors.iter().for_each(|color| color.post(|| ()));
        worker.drain();
    }

    /// Posts to one of the two.
    fn post(&self, color: usize, entry: u32) {
        self.logs[color].post(&self.colors[color], entry);
    }

    /// Posts to both, named in this order.
    fn post_both(&self, first: usize, entry: u32) {
        let logs = self.logs.clone();
        let both = [&self.colors[first], &self.colors[1 - first]];
        when(&both).post(move |_| logs.iter().for_each(|log| log.add(entry)));
    }

    /// The same, in the other order.
    fn turned(&self) -> Pair {
        let ([one, two], [log_one, log_two]) = (self.colors.clone(), self.logs.clone());
        Pair { colors: [two, one], logs: [log_two, log_one] }
    }

    fn all(&self) -> [Vec<u32>; 2] {
        [self.logs[0].all(), self.logs[1].all()]
    }
}

// Two sets of the same two colors, named in opposite orders by the workers of their homes, which
// then run them.
//
// Caught: `place_anywhere` that takes one home's lock at a time (the colors accept in different
// orders, and both sets wait for ever); `take` that does not set `Held` (overlap); `grant` that
// counts down without release (data race).
#[test]
fn two_sets_cross() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let pair = Pair::new(&model, [0, 1]);
        let other = crossing.spawn({
            let (model, pair) = (model.clone(), pair.clone());
            move || {
                model.worker(1, |worker| {
                    pair.post_both(1, 2);
                    worker.drain();
                });
            }
        });
        crossing.pass();
        model.worker(0, |worker| {
            pair.post_both(0, 1);
            worker.drain();
        });
        other.join().unwrap();
        drain(&model);
        let [first, second] = pair.all();
        in_order(&first, &[&[1], &[2]]);
        assert_eq!(first, second, "one order in all colors that sets have in common");
        drop(pair);
        finish(&model);
    });
}

// A set is accepted while one of its colors runs, and a callback is posted after it.
//
// Caught: a turn that ends at a member and does not hand the color over (the set never runs).
#[test]
fn a_set_meets_the_end_of_a_turn() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let pair = Pair::new(&model, [0, 0]);
        pair.post(0, 1);
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        crossing.pass();
        pair.post_both(0, 2);
        pair.post(0, 3);
        pair.post(1, 4);
        worker.join().unwrap();
        drain(&model);
        let [first, second] = pair.all();
        in_order(&first, &[&[1, 2, 3]]);
        in_order(&second, &[&[2, 4]]);
        drop(pair);
        finish(&model);
    });
}

// Both colors of a set run, on two workers, when it is accepted: both turns end at its members at
// the same time. Then something is posted after it.
//
// Caught: `grant` that counts down by a load and a store (the set never runs).
#[test]
fn a_set_gathers_its_colors() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let pair = Pair::new(&model, [0, 1]);
        pair.post(0, 1);
        pair.post(1, 2);
        pair.post_both(1, 3);
        let other = crossing.spawn({
            let (model, pair) = (model.clone(), pair.clone());
            move || {
                model.worker(1, |worker| {
                    worker.drain();
                    pair.post(1, 4);
                    worker.drain();
                });
            }
        });
        crossing.pass();
        model.worker(0, |worker| worker.drain());
        other.join().unwrap();
        drain(&model);
        assert_eq!(pair.all(), [vec![1, 3], vec![2, 3, 4]]);
        drop(pair);
        finish(&model);
    });
}

// A set is accepted while its second color is queued elsewhere, or has its turn there: the color
// moves to the worker of the first one, or stays. Then something is posted after it.
//
// Caught: `bring_together` that moves only the home (the color is in the queue of a worker that is
// not its home).
#[test]
fn a_set_moves_a_color_that_is_queued() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let pair = Pair::new(&model, [0, 1]);
        pair.warm_up(&model);
        pair.post(1, 1);
        let other = crossing.spawn({
            let (model, pair) = (model.clone(), pair.clone());
            move || {
                model.worker(1, |worker| {
                    worker.drain();
                    pair.post(1, 3);
                    worker.drain();
                });
            }
        });
        crossing.pass();
        model.worker(0, |worker| {
            pair.post_both(0, 2);
            pair.post(1, 4);
            worker.drain();
        });
        other.join().unwrap();
        drain(&model);
        let [first, second] = pair.all();
        assert_eq!(first, [2]);
        assert_eq!(second[0], 1);
        in_order(&second[1..], &[&[2, 4], &[3]]);
        drop(pair);
        finish(&model);
    });
}

// A set is accepted while a plain thread holds its second color: the color moves to the worker of
// the first one, and its holder releases it there.
//
// Caught: `lock_home` that does not check the home again under the lock (data race).
#[test]
fn a_set_moves_a_color_that_is_held() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let pair = Pair::new(&model, [0, 1]);
        pair.warm_up(&model);
        let holder = crossing.spawn({
            let (pair, state) = (pair.clone(), Colored::with_color((), &pair.colors[1]));
            move || _ = state.try_with(|()| pair.logs[1].add(1))
        });
        crossing.pass();
        model.worker(0, |worker| {
            pair.post_both(0, 2);
            worker.drain();
        });
        holder.join().unwrap();
        drain(&model);
        let [first, second] = pair.all();
        assert_eq!(first, [2]);
        // Without the 1 if the holder came too late.
        in_order(&second, if second.len() == 1 { &[&[2]] } else { &[&[1], &[2]] });
        drop(pair);
        finish(&model);
    });
}

// A set is accepted while a thread posts to one of its colors, and then to the other. The first
// post is accepted before the second, and the set before both, after both, or in between; the color
// named first in the set is in turn the first and the second of the thread.
//
// Caught: colors that are checked once, one after the other (the set goes before the first post and
// after the second).
#[test]
fn posts_from_outside_meet_a_set() {
    for first in [0, 1] {
        check(3, move || {
            let model = model(1);
            let crossing = Crossing::new();
            let pair = Pair::new(&model, [0, 0]);
            let poster = crossing.spawn({
                let pair = pair.clone();
                move || {
                    pair.post(0, 1);
                    pair.post(1, 2);
                }
            });
            crossing.pass();
            pair.post_both(first, 3);
            poster.join().unwrap();
            drain(&model);
            in_one_step(&pair);
            drop(pair);
            finish(&model);
        });
    }
}

// A set is accepted while one of its colors runs a callback that posts to both: to its own, which
// takes no locked instruction, and to the other one, at home elsewhere. In either order, with the
// set named in either order.
//
// Caught: colors that are checked once, one after the other; freezing all but the running color
// (the set goes before the first post and after the second).
#[test]
fn posts_of_a_callback_meet_a_set() {
    for (first, own_first) in [(0, true), (1, true), (0, false), (1, false)] {
        check(3, move || {
            let model = model(2);
            let crossing = Crossing::new();
            let pair = Pair::new(&model, [0, 1]);
            pair.colors[0].post({
                let (pair, crossing) = (pair.clone(), crossing.clone());
                move || {
                    crossing.pass();
                    let (one, two) = if own_first { (0, 1) } else { (1, 0) };
                    pair.post(one, one as u32 + 1);
                    pair.post(two, two as u32 + 1);
                }
            });
            let worker = crossing.spawn({
                let model = model.clone();
                move || model.worker(0, |worker| worker.drain())
            });
            crossing.pass();
            pair.post_both(first, 3);
            worker.join().unwrap();
            drain(&model);
            if own_first {
                in_one_step(&pair)
            } else {
                in_one_step(&pair.turned())
            }
            drop(pair);
            finish(&model);
        });
    }
}

/// The first color must not accept the set before a thread's first post there if the second color
/// accepts it after that thread's later post.
fn in_one_step(pair: &Pair) {
    let [first, second] = pair.all();
    let before = |log: &[u32]| log.first() == Some(&3);
    assert_eq!((first.len(), second.len()), (2, 2));
    assert!(!before(&first) || before(&second), "the set is in two places: {first:?} {second:?}");
}

// A complete set is stolen with the color that it runs in, while a thread posts to the other, which
// is held.
#[test]
fn a_complete_set_is_stolen() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let pair = Pair::new(&model, [0, 0]);
        model.worker(0, |_| pair.post_both(0, 1));
        model.mark_overdue(0);
        let thief = crossing.spawn({
            let model = model.clone();
            move || {
                model.worker(1, |worker| {
                    worker.steal();
                    worker.drain();
                });
            }
        });
        crossing.pass();
        model.worker(0, |worker| {
            pair.post(1, 2);
            worker.drain();
        });
        thief.join().unwrap();
        drain(&model);
        assert_eq!(pair.all(), [vec![1], vec![1, 2]]);
        drop(pair);
        finish(&model);
    });
}

// A task waits for a state, which is handed over to it while its own color is about to be handed to
// a set that needs the state as well: the task goes first, or gives the state back.
//
// Caught, in the shipped code: `place_urgent` that released the lock before it pushed, so that the
// color was handed to the set in between (deadlock). And: a turn that hands its color over although
// an urgent node waits (deadlock).
#[test]
fn a_grant_meets_a_set_that_takes_the_color_of_its_task() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let home = model.handle().new_color_at(0);
        // Pinned, because it would otherwise move to the worker of the task that waits for it.
        let state = Colored::with_color(0, &model.handle().pinned_color(1));
        model.seem_long(&home);
        let (done, set_done) = (Flag::new(), Flag::new());
        state.color().post(|| ());
        let task = home.spawn({
            let (state, done) = (state.clone(), done.clone());
            async move {
                state.with(|n| *n += 1).await;
                done.set();
            }
        });
        // Polls the task, which queues after the earlier post.
        model.worker(0, |worker| worker.drain());
        home.post(|| ());
        let flag = set_done.clone();
        when((&home, &state)).post(move |((), n)| {
            *n += 10;
            flag.set();
        });
        let other = crossing.spawn({
            let model = model.clone();
            move || model.worker(1, |worker| worker.drain())
        });
        crossing.pass();
        model.worker(0, |worker| worker.drain());
        other.join().unwrap();
        drain(&model);
        assert!(done.is_set(), "the task waits for ever");
        assert!(set_done.is_set(), "the set waits for ever");
        drop((task, home, state));
        finish(&model);
    });
}

// A turn reaches a thread's wait for its color, while another worker grants a state to a task of
// this color: the task goes first, then the thread, and then posts after the begin of the thread's
// wait.
//
// Caught: a turn that puts the wait after all others when it lets the task go first (order).
#[test]
fn a_wait_that_gives_way_to_a_task_keeps_its_place() {
    check(2, || {
        let model = model(2);
        let log = Log::new();
        let home = Colored::with_color(log.clone(), &model.handle().pinned_color(0));
        let state = Colored::with_color((), &model.handle().pinned_color(1));
        let (turn_has_begun, is_granted) = (Event::new(), Event::new());
        state.color().post(|| ());
        let task = home.color().spawn({
            let (state, log) = (state.clone(), log.clone());
            async move { state.with(|()| log.add(2)).await }
        });
        // Polls the task, which waits after the earlier post to the state.
        model.worker(0, |worker| worker.drain());
        let (begun, granted) = (turn_has_begun.clone(), is_granted.clone());
        home.post(move |log| {
            log.add(1);
            begun.set();
            block_on(poll_fn(|cx| granted.poll(cx)));
        });
        let Err(wait) = Wait::begin(home.with(|log| log.add(3))) else { panic!("something was posted before") };
        log.post(home.color(), 4);
        let other = thread::spawn({
            let model = model.clone();
            move || {
                block_on(poll_fn(|cx| turn_has_begun.poll(cx)));
                model.worker(1, |worker| worker.drain());
                is_granted.set();
            }
        });
        model.worker(0, |worker| worker.drain());
        wait.end();
        other.join().unwrap();
        drain(&model);
        assert_eq!(log.all(), [1, 2, 3, 4]);
        drop((task, home, state));
        finish(&model);
    });
}

// The future is dropped while its colors are being handed over.
//
// Caught: a canceled wait that keeps its colors (posts after it never run).
#[test]
fn a_wait_for_a_set_is_canceled() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let done = Flag::new();
        let states = [0, 0].map(|home| Colored::with_color(0, &model.handle().new_color_at(home)));
        states[0].post(|n| *n += 1);
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        {
            let mut wait = pin!(when((&states[0], &states[1])).with(|(a, b)| {
                *a += 10;
                *b += 10;
            }));
            let _ = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        when((&states[1], &states[0])).post(move |(b, a)| {
            assert!([(1, 0), (11, 10)].contains(&(*a, *b)), "{a} {b}");
            done.set();
        });
        worker.join().unwrap();
        drop(states);
        finish(&model);
    });
}

// A wait for two colors is dropped while one of them is being granted and the other is busy: the
// first is free at once.
//
// Caught: `grant` that does not check whether the wait was dropped, or checks with a load; `cancel`
// that releases nothing; a request that both sides free.
#[test]
fn a_wait_is_dropped_while_it_is_granted_a_color() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let done = Flag::new();
        let states = [0, 1].map(|home| Colored::with_color(0, &model.handle().new_color_at(home)));
        // Its worker does not run before everything else is over.
        states[1].post(|n| *n += 1);
        states[0].post(|n| *n += 1);
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        {
            let mut wait = pin!(when((&states[0], &states[1])).with(|_| ()));
            let _ = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            crossing.pass();
        }
        states[0].post(move |n| {
            assert_eq!(*n, 1);
            done.set();
        });
        worker.join().unwrap();
        drop(states);
        finish(&model);
    });
}

// A wait for two colors is dropped, and with it the last handle to the held one: that color is
// freed when the turn of the other one reaches its member.
#[test]
fn a_dropped_wait_does_not_look_at_colors_that_it_gave_back() {
    check(2, || {
        let model = model(1);
        let [held, busy] = [0, 0].map(|home| Colored::with_color(0, &model.handle().new_color_at(home)));
        busy.post(|n| *n += 1);
        {
            let mut wait = pin!(when((&held, &busy)).with(|_| ()));
            assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(held);
        model.worker(0, |worker| worker.drain());
        drop(busy);
        finish(&model);
    });
}

// As before, but while the turn of the other color reaches its member: both sides release held
// colors.
#[test]
fn a_wait_is_dropped_while_its_request_ends() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let [held, busy] = [1, 0].map(|home| Colored::with_color(0, &model.handle().new_color_at(home)));
        model.seem_long(held.color());
        model.seem_long(busy.color());
        busy.post(|n| *n += 1);
        let mut wait = Box::pin(when((held.reading(), &busy)).with(|_| ()));
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        crossing.pass();
        drop(wait);
        drop(held);
        worker.join().unwrap();
        drop(busy);
        finish(&model);
    });
}

/// Is in two colors at once when it is dropped.
struct InBoth {
    logs: [Log; 2],
    entry: u32,
    gone: Arc<AtomicUsize>,
}

impl Drop for InBoth {
    fn drop(&mut self) {
        self.logs.iter().for_each(|log| log.add(self.entry));
        self.gone.fetch_add(1, Ordering::Relaxed);
    }
}

// Workers stop while a set waits for their colors: its closure is run or dropped, once, with both
// colors held.
//
// Caught: `stop` that releases the colors before it drops the closure, and `Member` that is dropped
// like any node instead of granted its color (data race, or never dropped).
#[test]
fn a_set_meets_the_end_of_its_workers() {
    check(2, || {
        let model = model(2);
        let crossing = Crossing::new();
        let pair = Pair::new(&model, [0, 1]);
        pair.colors.iter().for_each(|color| model.seem_long(color));
        let gone = Arc::new(AtomicUsize::new(0));
        pair.post(0, 1);
        let other = crossing.spawn({
            let model = model.clone();
            move || {
                model.worker(1, |worker| {
                    worker.step();
                    worker.exit();
                });
            }
        });
        let poster = crossing.spawn({
            let (pair, gone) = (pair.clone(), gone.clone());
            move || {
                let inside = InBoth { logs: pair.logs.clone(), entry: 2, gone };
                when((&pair.colors[1], &pair.colors[0])).post(move |_| drop(inside));
            }
        });
        // From now on the colors live as long as they are held or have nodes.
        drop(pair);
        crossing.pass();
        model.worker(0, |worker| {
            worker.step();
            worker.exit();
        });
        poster.join().unwrap();
        other.join().unwrap();
        assert_eq!(gone.load(Ordering::Relaxed), 1);
        finish(&model);
    });
}

// A set releases a color at another worker's home, where it continues at once, while the last
// handles are dropped.
//
// Caught: a request that is freed before it has released its colors (used after it was freed);
// `release_but` that releases a color twice (overlap).
#[test]
fn a_set_is_over_while_its_colors_go_on() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let pair = Pair::new(&model, [0, 1]);
        let logs = pair.logs.clone();
        pair.post_both(0, 1);
        let other = crossing.spawn({
            let (model, pair) = (model.clone(), pair.clone());
            move || {
                model.worker(1, |worker| {
                    pair.post(1, 2);
                    drop(pair);
                    worker.drain();
                });
            }
        });
        crossing.pass();
        model.worker(0, |worker| {
            drop(pair);
            worker.drain();
        });
        other.join().unwrap();
        drain(&model);
        assert_eq!(logs.map(|log| log.all()), [vec![1], vec![1, 2]]);
        finish(&model);
    });
}

// The end of a turn releases the other color of its set, at home here, which has a waiting node by
// then; meanwhile another thread posts to it, and the last handles are dropped.
#[test]
fn a_set_ends_with_its_turn() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let pair = Pair::new(&model, [0, 0]);
        let logs = pair.logs.clone();
        let other = model.worker(0, |worker| {
            pair.run_shortly(worker);
            let other = crossing.spawn({
                let pair = pair.clone();
                move || {
                    pair.post(0, 1);
                    pair.post(1, 1);
                }
            });
            crossing.pass();
            // It runs in a turn of the color that is named last, which has no nodes after it.
            pair.post_both(0, 2);
            pair.post(0, 3);
            drop(pair);
            worker.drain();
            other
        });
        other.join().unwrap();
        drain(&model);
        let [first, second] = logs.map(|log| log.all());
        in_order(&first, &[&[1], &[2, 3]]);
        in_order(&second, &[&[1], &[2]]);
        let behind = |log: &[u32]| log.iter().position(|entry| *entry == 1) > log.iter().position(|entry| *entry == 2);
        assert!(
            !behind(&first) || behind(&second),
            "posted to the one color, then to the other: {first:?}, {second:?}"
        );
        finish(&model);
    });
}

// The same without another thread, and with handles that stay: posts to the other color after the
// set run when the set has ended.
//
// Caught: `release_simply` that makes the color idle with nodes in its fifo (never run).
#[test]
fn posts_after_a_set_run_when_its_turn_has_ended() {
    check(3, || {
        let model = model(1);
        let pair = Pair::new(&model, [0, 0]);
        model.worker(0, |worker| {
            pair.run_shortly(worker);
            // It runs in a turn of the color that is named last.
            pair.post_both(0, 1);
            pair.post(0, 2);
            worker.drain();
        });
        assert_eq!(pair.all(), [vec![1, 2], vec![1]]);
        drop(pair);
        finish(&model);
    });
}

// A worker posts a set after a post of a plain thread. The set ends with the turn that runs it, and
// so does the hold of its other color.
//
// Caught: a set that takes its place before the contents of an inbox (order).
#[test]
fn a_set_comes_behind_what_came_from_outside() {
    check(3, || {
        let model = model(1);
        let pair = Pair::new(&model, [0, 0]);
        let logs = pair.logs.clone();
        pair.post(0, 1);
        model.worker(0, |worker| {
            pair.post_both(1, 2);
            drop(pair);
            worker.drain();
        });
        assert_eq!(logs.map(|log| log.all()), [vec![1, 2], vec![2]]);
        finish(&model);
    });
}
