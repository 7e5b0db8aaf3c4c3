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

/// Three readers of a state, 80 us each, and then a writer for 20 us, by turns: each waits for the others, and no color is
/// always busy with one thing.
#[test]
fn a_writer_among_readers() {
    let mut program = Program::new(4);
    let file = "src/handler.rs";
    let call =
        |color, worker, accepted, started, ended| Call { cause: 0, color, worker, file, accepted, started, ended };
    // A task that waits for the state has a turn of no length when it gets it.
    let wait = |accepted, granted| call(1, 0, accepted, granted, granted);
    for n in 0..100_u64 {
        let begin = n * 100 * US;
        let (reads_end, end) = (begin + 80 * US, begin + 100 * US);
        for worker in 0..3 {
            if n > 0 {
                program.call(wait(begin - 20 * US, begin));
            }
            let reader = program.call(call(10 + worker as u64, worker, begin, begin, reads_end));
            program.read(reader, 1, worker, "src/table.rs", begin, reads_end);
        }
        program.call(wait(begin + 21 * US, reads_end));
        let writer = program.call(call(20, 3, reads_end, reads_end, end));
        program.in_line(writer, 1, 3, "src/table.rs", reads_end, end);
    }
    let snapshot = program.recording().snapshot();
    let Verdict::Readers { family, waiting, writing } = &snapshot.verdict else { panic!("{snapshot}") };
    assert_eq!(family, "src/table.rs:1");
    // Of 100 us, three readers wait for 20 each, and the writer for 59.
    assert!((1.1..1.3).contains(waiting) && (0.19..0.21).contains(writing), "{snapshot}");
    let table = snapshot.families.iter().find(|family| family.is_state).expect("it was used");
    assert_eq!((table.runs, table.reads), (400, 300));
    assert_eq!(table.waits.readers_ns, 100 * 59 * US);
    assert!(snapshot.to_string().starts_with("readers and writers of src/table.rs:1 wait"), "{snapshot}");
}

/// Readers alone run at the same time, and make no bottleneck.
#[test]
fn readers_alone_are_no_bottleneck() {
    let mut program = Program::new(4);
    for n in 0..400_u64 {
        let (begin, worker) = (n / 2 * 100 * US, (n % 2) as i32);
        let (accepted, started, ended) = (begin, begin, begin + 100 * US);
        let call = Call { cause: 0, color: 10 + n, worker, file: "src/handler.rs", accepted, started, ended };
        let call = program.call(call);
        program.read(call, 1, worker, "src/table.rs", begin, begin + 95 * US);
    }
    let snapshot = program.recording().snapshot();
    assert!(matches!(snapshot.verdict, Verdict::Idle { .. }), "{snapshot}");
}

/// Eight accounts in a ring, and transfers that each hold two neighbors: half of the colors' time is used, and transfers wait.
#[test]
fn a_herd_at_holds_of_several_colors() {
    let mut program = Program::new(8);
    for n in 0..200_u64 {
        let begin = n * 100 * US;
        for account in 0..4_u64 {
            let (accepted, started) = (begin, begin + 50 * US);
            let worker = account as i32;
            let file = "src/transfer.rs";
            program.call_of_several(Call {
                cause: 0,
                color: account,
                worker,
                file,
                accepted,
                started,
                ended: begin + 100 * US,
            });
        }
    }
    let snapshot = program.recording().snapshot();
    let Verdict::Several { family, waiting } = &snapshot.verdict else { panic!("{snapshot}") };
    assert_eq!(family, "src/transfer.rs:1");
    assert!((1.9..2.1).contains(waiting), "{snapshot}");
    assert_eq!(snapshot.families[0].waits.several_ns, 200 * 4 * 50 * US);
}

/// Requests go through a stage that handles one at a time, in 95 of 100 us.
#[test]
fn a_slow_stage() {
    let mut program = Program::new(4);
    for n in 0..200_u64 {
        let at = n * 100 * US;
        let call = |cause, color, file, accepted, started, ended| Call {
            cause,
            color,
            worker: (color % 4) as i32,
            file,
            accepted,
            started,
            ended,
        };
        let front = program.call(call(0, 100 + n, "src/front.rs", at, at, at + 10 * US));
        let stage = program.call(call(front, 1, "src/stage.rs", at + 9 * US, at + 10 * US, at + 105 * US));
        program.call(call(stage, 300 + n, "src/answer.rs", at + 104 * US, at + 105 * US, at + 110 * US));
    }
    let snapshot = program.recording().snapshot();
    let Verdict::Color { family, .. } = &snapshot.verdict else { panic!("{snapshot}") };
    assert_eq!(family, "src/stage.rs:1");
}

/// 80 lines, each with more work than the one before: the 50 with most work have rows, and the others have one together.
#[test]
fn families_beyond_the_limit_are_one() {
    let mut program = Program::new(1);
    let mut at = 0;
    for n in 1..=80_u64 {
        let file: &'static str = Box::leak(format!("src/part{n}.rs").into_boxed_str());
        let (accepted, started, ended) = (at, at, at + n * US);
        program.call(Call { cause: 0, color: n, worker: 0, file, accepted, started, ended });
        at = ended;
    }
    let snapshot = program.recording().snapshot();
    assert_eq!((snapshot.families.len(), &*snapshot.families[0].name), (51, "src/part80.rs:1"));
    let other = &snapshot.families[50];
    assert_eq!((&*other.name, other.colors, other.runs), ("other", 30, 30));
    assert_eq!(other.run_ns, (1..=30).sum::<u64>() * US);
    assert_eq!(snapshot.families.iter().map(|family| family.run_ns).sum::<u64>(), snapshot.work_ns);
}

/// Each request runs for 30 us, reads a file for 5 ms, and runs for another 20 us.
#[test]
fn a_slow_disk() {
    let mut program = Program::new(2);
    for n in 0..100_u64 {
        let (at, color) = (n * 6_000 * US, 10 + n % 4);
        let call = |file, started, ended| Call { cause: 0, color, worker: 0, file, accepted: started, started, ended };
        let first = program.call(call("src/download.rs", at, at + 30 * US));
        program.call(call("src/download.rs", at + 5_030 * US, at + 5_050 * US));
        program.request(first, at, at + 5_050 * US);
    }
    let snapshot = program.recording().snapshot();
    let Verdict::Outside { after, share, each_ns } = &snapshot.verdict else { panic!("{snapshot}") };
    assert_eq!((&**after, *each_ns), ("src/download.rs:1", 5_000 * US));
    assert!((0.98..1.0).contains(share), "{snapshot}");
    assert!(
        snapshot.to_string().starts_with("requests wait for something outside of the program after src/download.rs:1")
    );
}

/// The handler's task asks a color that sends to a stage of another machine, which answers after 8 ms.
#[test]
fn a_slow_remote_stage() {
    let mut program = Program::new(2);
    for n in 0..50_u64 {
        let at = n * 10_000 * US;
        let call = |cause, color, file, accepted, started, ended| Call {
            cause,
            color,
            worker: 0,
            file,
            accepted,
            started,
            ended,
        };
        let front = program.call(call(0, 10, "src/front.rs", at, at, at + 50 * US));
        program.call(call(front, 20, "src/remote.rs", at + 40 * US, at + 50 * US, at + 60 * US));
        let answer = program.call(call(0, 20, "src/remote.rs", at + 8_060 * US, at + 8_060 * US, at + 8_070 * US));
        program.call(call(answer, 10, "src/front.rs", at + 8_069 * US, at + 8_070 * US, at + 8_100 * US));
        program.request(front, at, at + 8_100 * US);
    }
    let snapshot = program.recording().snapshot();
    let Verdict::Outside { after, .. } = &snapshot.verdict else { panic!("{snapshot}") };
    assert_eq!(after, "src/remote.rs:1", "{snapshot}");
}

/// Requests that wait for each other inside are no matter of the world outside.
#[test]
fn requests_that_wait_inside_name_the_color() {
    let mut program = Program::new(2);
    for n in 0..100_u64 {
        let (at, color) = (n * 100 * US, 10 + n);
        let (accepted, started) = (at.saturating_sub(5_000 * US), at);
        let call = program.call(Call {
            cause: 0,
            color: 1,
            worker: 0,
            file: "src/bank.rs",
            accepted,
            started,
            ended: at + 99 * US,
        });
        program.request(call, accepted, at + 99 * US);
        program.call(Call {
            cause: 0,
            color,
            worker: 1,
            file: "src/rare.rs",
            accepted: at,
            started: at,
            ended: at + US,
        });
    }
    let snapshot = program.recording().snapshot();
    assert!(matches!(&snapshot.verdict, Verdict::Color { family, .. } if family == "src/bank.rs:1"), "{snapshot}");
}
