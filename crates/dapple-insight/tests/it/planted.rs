//! Each planted bottleneck is the first line of the report.

use dapple_insight::Verdict;

use crate::program::{Call, Program, US};

/// 100 tasks on two workers, each with 10 us of its own and 90 us with one state.
#[test]
fn a_hot_state() {
    let mut program = Program::new(2);
    for n in 0..100_u64 {
        // The one worker's task works for itself while the other one has the state.
        let (begin, worker) = (n * 90 * US, (n % 2) as i32);
        let call = program.call(Call {
            cause: 0,
            color: 10 + n,
            worker,
            file: "src/handler.rs",
            accepted: 0,
            started: begin,
            ended: begin + 100 * US,
        });
        program.in_line(call, 1, worker, "src/bank.rs", begin + 10 * US, begin + 100 * US);
    }
    let snapshot = program.recording().snapshot();
    let Verdict::Color { family, busy, speedup_max, .. } = &snapshot.verdict else { panic!("{snapshot}") };
    assert_eq!(family, "src/bank.rs:1");
    assert!(*busy > 0.98 && (1.0..1.2).contains(speedup_max), "{snapshot}");
    assert!(snapshot.to_string().starts_with("src/bank.rs:1 is the bottleneck"), "{snapshot}");
}

/// One connection of a thousand has all the work.
#[test]
fn an_uneven_family() {
    let mut program = Program::new(4);
    for n in 0..1000_u64 {
        let at = n * 100 * US;
        let call = |color, worker, ended| Call {
            cause: 0,
            color,
            worker,
            file: "src/connection.rs",
            accepted: at,
            started: at,
            ended,
        };
        program.call(call(1, 0, at + 95 * US));
        program.call(call(2 + n, 1, at + 10 * US));
    }
    let snapshot = program.recording().snapshot();
    let Verdict::Color { family, .. } = &snapshot.verdict else { panic!("{snapshot}") };
    assert_eq!(family, "src/connection.rs:1");
    assert_eq!((snapshot.families.len(), snapshot.families[0].colors), (1, 1001));
}

/// A callback blocks for 50 ms, and eight others are ready meanwhile.
#[test]
fn a_callback_that_blocks() {
    let mut program = Program::new(1);
    let ms = 1_000 * US;
    let call =
        |color, file, accepted, started, ended| Call { cause: 0, color, worker: 0, file, accepted, started, ended };
    program.call(call(1, "src/slow.rs", 0, 0, 50 * ms));
    for n in 0..8_u64 {
        program.call(call(2 + n, "src/quick.rs", n * ms, 50 * ms + n * US, 50 * ms + (n + 1) * US));
    }
    program.call(call(20, "src/quick.rs", 200 * ms, 200 * ms, 200 * ms + US));
    let snapshot = program.recording().snapshot();
    let Verdict::Blocked { callback, waited, .. } = &snapshot.verdict else { panic!("{snapshot}") };
    assert_eq!((&**callback, *waited), ("src/slow.rs:1", 8));
    let quick = snapshot.families.iter().find(|family| family.name == "src/quick.rs:1").expect("it ran");
    // 50 + 49 + … + 43 ms behind the other color.
    assert!(quick.waits.other_colors_ns.abs_diff(372 * ms) < ms, "{quick:?}");
    assert!(quick.waits.same_color_ns == 0 && quick.waits.worker_ns < ms, "{quick:?}");
}

/// Two colors post to each other, each on a worker of its own.
#[test]
fn a_pair_in_lock_step() {
    let mut program = Program::new(2);
    let mut cause = 0;
    for n in 0..1000_u64 {
        let (at, side) = (n * 50 * US, n % 2);
        let file = ["src/ping.rs", "src/pong.rs"][side as usize];
        let (accepted, ended) = (at.saturating_sub(US), at + 50 * US);
        cause = program.call(Call { cause, color: 1 + side, worker: side as i32, file, accepted, started: at, ended });
    }
    let snapshot = program.recording().snapshot();
    let Verdict::LockStep { one, other, .. } = &snapshot.verdict else { panic!("{snapshot}") };
    assert_eq!((&**one, &**other), ("src/ping.rs:1", "src/pong.rs:1"));
}

/// One worker, always busy; six of ten parts of the work are one color's.
#[test]
fn too_few_workers_and_the_next_bottleneck() {
    let snapshot = busy_worker().recording().snapshot();
    let Verdict::Workers { next, speedup_max, .. } = &snapshot.verdict else { panic!("{snapshot}") };
    assert_eq!(next, "src/log.rs:1");
    assert!((1.6..1.7).contains(speedup_max), "{snapshot}");
    let predicted: Vec<f64> = snapshot.predictions.iter().map(|prediction| prediction.speedup).collect();
    // All of it is there at the begin, and nine tenths of the work are done a little earlier than the last tenth.
    assert!(predicted.iter().all(|speedup| *speedup < 1.85), "{predicted:?}");
}

fn busy_worker() -> Program {
    let mut program = Program::new(1);
    let call = |color, file, started, ended| Call { cause: 0, color, worker: 0, file, accepted: 0, started, ended };
    for n in 0..1000_u64 {
        let at = n * 100 * US;
        program.call(call(1, "src/log.rs", at, at + 60 * US));
        program.call(call(2 + n, "src/work.rs", at + 60 * US, at + 100 * US));
    }
    program
}

#[test]
fn a_program_that_waits_for_others() {
    let mut program = Program::new(2);
    for n in 0..100_u64 {
        let at = n * 1_000 * US;
        let (accepted, started, ended) = (at, at, at + 50 * US);
        program.call(Call { cause: 0, color: n, worker: 0, file: "src/rare.rs", accepted, started, ended });
    }
    let snapshot = program.recording().snapshot();
    assert!(matches!(snapshot.verdict, Verdict::Idle { busy } if busy < 0.05), "{snapshot}");
}

#[test]
fn waits_by_cause_add_up() {
    let mut program = Program::new(1);
    let call = |color, accepted, started, ended| Call {
        cause: 0,
        color,
        worker: 0,
        file: "src/a.rs",
        accepted: accepted * US,
        started: started * US,
        ended: ended * US,
    };
    program.call(call(1, 0, 0, 10));
    program.call(call(2, 0, 10, 30));
    // 10 behind its color, 20 behind the other one, 5 for the worker.
    program.call(call(1, 0, 35, 40));
    let snapshot = program.recording().snapshot();
    let waits = snapshot.families[0].waits;
    assert_eq!(waits.same_color_ns, 10 * US);
    assert_eq!(waits.other_colors_ns, 10 * US + 20 * US);
    assert_eq!(waits.worker_ns, 5 * US);
    assert_eq!(waits.total_ns(), 45 * US);
}
