//! The states of `parking`.

use std::time::Duration;

use dapple_io::model::{Model, ModelTimer};

use crate::support::{Flag, Parcel, check, spawn};

// A thread unparks the worker before, while or after it parks: the park returns, and the worker
// sees the thread's earlier changes.
//
// Caught: a park that sleeps although it was told not to (hang); an unpark that releases nothing,
// and a park that acquires nothing, whether it slept or not (data races); an unpark that does not
// wake a parked worker (hang).
#[test]
fn an_unpark_meets_a_park() {
    check(3, || {
        let model = Model::new(1);
        let parcel = Parcel::new();
        let other = spawn({
            let (model, parcel) = (model.clone(), parcel.clone());
            move || {
                parcel.write(1);
                model.unpark();
            }
        });
        model.park();
        assert_eq!(parcel.read(), 1);
        other.join().unwrap();
        model.finish();
    });
}

// Two threads unpark the worker: it sees the changes of both, though the second may find it awake.
#[test]
fn two_unparks_meet_a_park() {
    check(3, || {
        let model = Model::new(1);
        let seen = [Flag::new(), Flag::new()];
        let others = seen.clone().map(|seen| {
            let model = model.clone();
            spawn(move || {
                seen.set();
                model.unpark();
            })
        });
        while !seen.iter().all(Flag::is_set) {
            model.park();
        }
        others.map(|other| other.join().unwrap());
        model.finish();
    });
}

// A thread that is not a worker arms the first timer while the worker parks without one: the worker
// wakes for it.
//
// Caught: an arming that does not tell the worker (it sleeps for ever).
#[test]
fn a_timer_is_armed_while_the_worker_parks() {
    check(3, || {
        let model = Model::new(1);
        let fired = Flag::new();
        let worker = spawn({
            let (model, fired) = (model.clone(), fired.clone());
            move || {
                model.own();
                while !fired.is_set() {
                    model.park();
                }
            }
        });
        let entered = model.enter();
        let mut timer = ModelTimer::after(Duration::from_millis(5));
        assert!(!timer.poll(&fired.waker()));
        worker.join().unwrap();
        drop((timer, entered));
        model.finish();
    });
}
