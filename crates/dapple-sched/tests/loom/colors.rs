//! One color: its inbox, its turns, its home, its sleepers, its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dapple_sched::Colored;
use loom::sync::atomic::AtomicBool;

use crate::support::{Crossing, Entry, Flag, Log, check, drain, finish, in_order, model, work_until};

// The inbox against the running worker and its posts to itself.
//
// Caught: a color that posts to itself without draining its inbox first (order); an early drain
// that clears NOTIFIED (linked twice, the list becomes a ring).
#[test]
fn foreign_posts_meet_the_running_worker() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let color = model.handle().new_color();
        let log = Log::new();
        let posted = Arc::new(AtomicBool::new(false));
        let poster = crossing.spawn({
            let (color, log, posted) = (color.clone(), log.clone(), posted.clone());
            move || {
                log.post(&color, 1);
                posted.store(true, Ordering::Release);
                log.post(&color, 2);
            }
        });
        crossing.pass();
        let after_first = Flag::new();
        model.worker(0, |worker| {
            let (inner, again, after_first) = (log.clone(), color.clone(), after_first.clone());
            color.post(move || {
                inner.add(11);
                if posted.load(Ordering::Acquire) {
                    after_first.set();
                }
                inner.post(&again, 12);
            });
            worker.drain();
            poster.join().unwrap();
            worker.drain();
        });
        let log = log.all();
        in_order(&log, &[&[1, 2], &[11, 12]]);
        let place = |entry| log.iter().position(|&other| other == entry);
        assert!(!after_first.is_set() || place(1) < place(12), "{log:?}");
        drop(color);
        finish(&model);
    });
}

// Two posters race for the notification; an earlier post runs earlier.
//
// Caught: `push_inbox` that tells every poster to link (linked twice, the list becomes a ring).
#[test]
fn two_posters_share_an_inbox() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let color = model.handle().new_color();
        let log = Log::new();
        let poster = crossing.spawn({
            let (color, log) = (color.clone(), log.clone());
            move || log.post(&color, 1)
        });
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        crossing.pass();
        log.post(&color, 11);
        poster.join().unwrap();
        log.post(&color, 2);
        worker.join().unwrap();
        drain(&model);
        in_order(&log.all(), &[&[1, 2], &[11, 2][..1]]);
        assert_eq!(log.all()[2], 2, "{:?}", log.all());
        drop(color);
        finish(&model);
    });
}

// A thief takes the run queue and the notifications of a worker that is marked as in a long
// callback, but is not.
//
// Caught: `steal_news` that empties the inbox of a color that runs (data race), or takes a color
// without moving its home (data race); `take_news` that drops colors with a moved home (lost
// callback).
#[test]
fn an_overdue_worker_is_robbed() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let color = model.handle().new_color_at(0);
        let log = Log::new();
        log.post(&color, 1);
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
        let poster = crossing.spawn({
            let (color, log) = (color.clone(), log.clone());
            move || log.post(&color, 2)
        });
        crossing.pass();
        model.worker(0, |worker| {
            worker.drain();
            thief.join().unwrap();
            poster.join().unwrap();
            worker.drain();
        });
        drain(&model);
        in_order(&log.all(), &[&[1, 2]]);
        drop(color);
        finish(&model);
    });
}

// The same with a pinned color: the thief takes nothing, and the nodes that it puts back are found.
//
// Caught: `steal_news` that ignores the pin (it runs on the thief), or that does not put it back
// (lost callback).
#[test]
fn pinned_colors_are_left_to_an_overdue_worker() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let color = model.handle().pinned_color(0);
        let log = Log::new();
        let post = |entry: u32| {
            let (log, handle) = (log.clone(), model.handle());
            move || {
                assert_eq!(handle.worker_index(), Some(0));
                log.add(entry);
            }
        };
        color.post(post(1));
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
        let poster = crossing.spawn({
            let (color, second) = (color.clone(), post(2));
            move || color.post(second)
        });
        crossing.pass();
        model.worker(0, |worker| {
            worker.drain();
            thief.join().unwrap();
            poster.join().unwrap();
            worker.drain();
        });
        in_order(&log.all(), &[&[1, 2]]);
        drop(color);
        finish(&model);
    });
}

// A color moves home to the worker that posts to it (which is a lower one, see `placement.rs`),
// while that worker posts.
//
// Caught, in the shipped code: a home moved without the lock of the new home (data race). And:
// `take_news` that drops colors with a moved home (lost callback).
#[test]
fn a_color_moves_to_its_poster() {
    check(4, || {
        let model = model(2);
        let crossing = Crossing::new();
        let color = model.handle().new_color_at(1);
        let log = Log::new();
        let poster = crossing.spawn({
            let (model, color, log, passing) = (model.clone(), color.clone(), log.clone(), crossing.clone());
            move || {
                model.worker(0, |worker| {
                    log.post(&color, 1);
                    passing.pass();
                    log.post(&color, 2);
                    passing.pass();
                    worker.drain();
                });
            }
        });
        crossing.pass();
        model.worker(1, |worker| {
            worker.drain();
            crossing.pass();
            worker.drain();
            poster.join().unwrap();
        });
        drain(&model);
        in_order(&log.all(), &[&[1, 2]]);
        drop(color);
        finish(&model);
    });
}

// A post from outside against a worker that falls asleep.
//
// Caught: `link_remote` without unpark, and `fall_asleep` by a load and a store instead of one
// exchange (deadlock).
#[test]
fn a_post_wakes_a_sleeper() {
    check(4, || {
        let model = model(1);
        let crossing = Crossing::new();
        let color = model.handle().new_color();
        let done = Flag::new();
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        color.post(move || done.set());
        drop(color);
        worker.join().unwrap();
        finish(&model);
    });
}

// Posts to a color while it was held are queued at its release, and its worker is woken.
//
// Caught: `release` without kick (deadlock).
#[test]
fn a_release_wakes_a_sleeper() {
    check(4, || {
        let model = model(1);
        let crossing = Crossing::new();
        let done = Flag::new();
        let state = Colored::with_color((), &model.handle().new_color());
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        state.try_with(|()| state.post(move |()| done.set())).expect("nobody else asks");
        worker.join().unwrap();
        drop(state);
        finish(&model);
    });
}

// Posts race with the end of a worker: each closure is run or dropped, once, while its color is
// held.
//
// Caught: `link_remote` that takes CLOSED for linked (closures neither run nor dropped).
#[test]
fn a_post_meets_the_end_of_a_worker() {
    check(4, || {
        let model = model(1);
        let crossing = Crossing::new();
        let color = model.handle().new_color();
        let (log, gone) = (Log::new(), Arc::new(AtomicUsize::new(0)));
        let post = |entry| {
            let entry = Entry { log: log.clone(), entry, gone: gone.clone() };
            color.post(move || drop(entry));
        };
        post(1);
        let worker = crossing.spawn({
            let model = model.clone();
            move || {
                model.worker(0, |worker| {
                    worker.step();
                    worker.exit();
                });
            }
        });
        crossing.pass();
        post(2);
        post(3);
        worker.join().unwrap();
        assert_eq!(gone.load(Ordering::Relaxed), 3);
        in_order(&log.all(), &[&[1, 2, 3]]);
        drop(color);
        finish(&model);
    });
}

// A color is stolen from a worker that ends, while a thread that has just posted is about to link
// it there.
//
// Caught, in the shipped code: `dispose::notified` that trusted the home it had read before (it
// found the color `Running`).
#[test]
fn a_post_meets_the_end_of_the_former_home() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let color = model.handle().new_color_at(0);
        let log = Log::new();
        model.worker(0, |_| log.post(&color, 1));
        model.mark_overdue(0);
        let thief = crossing.spawn({
            let model = model.clone();
            move || {
                model.worker(1, |worker| {
                    worker.steal();
                    worker.step();
                    worker.exit();
                });
            }
        });
        let home = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.exit())
        });
        crossing.pass();
        log.post(&color, 2);
        thief.join().unwrap();
        home.join().unwrap();
        drop(color);
        finish(&model);
    });
}

// The last handle of a named color is dropped while its turn ends and while a thread looks the name
// up.
//
// Caught: `remove_unused` that does not check the handles again under the lock, `Dead::is` that
// ignores the inbox, and the last handle given up without the home lock (each a use after free).
#[test]
fn a_name_is_looked_up_while_its_color_dies() {
    check(4, || {
        let model = model(1);
        let crossing = Crossing::new();
        let color = model.handle().named_color(7);
        let log = Log::new();
        log.post(&color, 1);
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        crossing.pass();
        drop(color);
        let again = model.handle().named_color(7);
        log.post(&again, 2);
        drop(again);
        worker.join().unwrap();
        finish(&model);
    });
}

// The last two handles of a color are dropped at the same time, while its turn ends.
//
// Caught: `Dead::is` that ignores the inbox (use after free).
#[test]
fn two_handles_go_at_once() {
    check(4, || {
        let model = model(1);
        let crossing = Crossing::new();
        let color = model.handle().new_color();
        color.post(|| ());
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        let other = crossing.spawn({
            let color = color.clone();
            move || drop(color)
        });
        crossing.pass();
        drop(color);
        other.join().unwrap();
        worker.join().unwrap();
        finish(&model);
    });
}
