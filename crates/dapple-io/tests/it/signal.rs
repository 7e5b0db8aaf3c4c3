//! Signals. Each test has a signal of its own, as they reach the whole process.

use dapple_io::event::on_signal;
use dapple_io::signal::{SIGHUP, SIGUSR1, SIGUSR2, ctrl_c, signal};
use dapple_sched::spawn;
use rustix::process::{Signal, getpid, kill_process};

use crate::{LIMIT, channel_callback, run, runtime};

fn send(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
}

#[test]
fn a_signal_is_not_lost_between_calls() {
    run(1, async {
        let mut signal = signal(SIGUSR1).unwrap();
        for _ in 0..3 {
            send(Signal::USR1);
            signal.recv().await;
        }
    });
}

#[test]
fn a_signal_calls_back() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (callback, rx) = channel_callback();
    let registration = on_signal(SIGUSR2, callback).unwrap();
    for _ in 0..3 {
        send(Signal::USR2);
        rx.recv_timeout(LIMIT).unwrap();
    }
    registration.cancel();
}

#[test]
fn every_runtime_hears_of_a_signal() {
    let runtimes = [runtime(1), runtime(1)];
    let signals = runtimes.each_ref().map(|runtime| {
        let _entered = runtime.enter();
        signal(SIGHUP).unwrap()
    });
    send(Signal::HUP);
    for (runtime, mut signal) in runtimes.iter().zip(signals) {
        runtime.block_on(async { signal.recv().await });
    }
}

#[test]
fn ctrl_c_is_awaited() {
    run(1, async {
        let mut ready = signal(dapple_io::signal::SIGINT).unwrap();
        let waiting = spawn(async { ctrl_c().await.unwrap() });
        // Whenever the task begins to wait, one of the signals comes after it.
        while !waiting.is_finished() {
            send(Signal::INT);
            ready.recv().await;
            dapple_sched::spawn(async {}).await.unwrap();
        }
    });
}

#[test]
fn signals_that_cannot_be_caught_are_refused() {
    run(1, async {
        for number in [0, -1, 9, 19, 65, 1000] {
            assert!(signal(number).is_err(), "{number}");
        }
    });
}
