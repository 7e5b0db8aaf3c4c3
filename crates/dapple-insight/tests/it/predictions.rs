//! The rates of programs with a known answer.

use dapple_insight::{Change, Recording};

use crate::program::{Call, Program, US, gzip};

/// 16 clients ask as soon as they have an answer: 50 us of work for each answer, and 50 us with one state.
fn half_serial() -> Program {
    let mut program = Program::new(1);
    for n in 0..1600_u64 {
        let (at, client) = (n * 100 * US, n % 16);
        let accepted = if n < 16 { 0 } else { (n - 16) * 100 * US + 100 * US };
        let call = program.call(Call {
            cause: 0,
            color: 10 + client,
            worker: 0,
            file: "src/client.rs",
            accepted,
            started: at,
            ended: at + 100 * US,
        });
        program.in_line(call, 1, 0, "src/state.rs", at + 50 * US, at + 100 * US);
    }
    program
}

fn near(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.05, "{found} instead of {expected}");
}

#[test]
fn a_serial_half_allows_two_times() {
    let recording = half_serial().recording();
    for (workers, expected) in [(1, 1.0), (2, 2.0), (4, 2.0), (64, 2.0)] {
        near(recording.predict(workers, &[]).speedup, expected);
    }
}

#[test]
fn changes_lift_the_bound() {
    let recording = half_serial().recording();
    let family = || "src/state.rs:1".to_owned();
    near(recording.predict(4, &[Change::Faster { family: family(), times: 2.0 }]).speedup, 4.0);
    near(recording.predict(4, &[Change::Readable { family: family() }]).speedup, 4.0);
    near(recording.predict(1, &[Change::Faster { family: family(), times: 2.0 }]).speedup, 100.0 / 75.0);
    let split = recording.predict(4, &[Change::Split { family: family(), parts: 4 }]).speedup;
    assert!(split > 3.0, "{split}");
    near(recording.predict(4, &[Change::Readable { family: "src/nothing.rs:1".to_owned() }]).speedup, 2.0);
}

/// Each callback posts the next: no number of workers helps.
#[test]
fn a_chain_gains_nothing() {
    let mut program = Program::new(1);
    let mut cause = 0;
    for n in 0..500_u64 {
        let (started, ended) = (n * 10 * US, (n + 1) * 10 * US);
        let accepted = started.saturating_sub(US);
        cause = program.call(Call { cause, color: n, worker: 0, file: "src/chain.rs", accepted, started, ended });
    }
    near(program.recording().predict(8, &[]).speedup, 1.0);
}

/// Clients that come at fixed times do not come faster.
#[test]
fn an_open_loop_keeps_its_rate() {
    let mut program = Program::new(1);
    for n in 0..500_u64 {
        let at = n * 100 * US;
        let (accepted, started, ended) = (at, at, at + 10 * US);
        program.call(Call { cause: 0, color: n, worker: 0, file: "src/open.rs", accepted, started, ended });
    }
    near(program.recording().predict(8, &[]).speedup, 1.0);
}

/// A callback of 100 us, with 75 us in a state that has a label.
#[test]
fn a_change_of_a_label_is_one_of_its_colors() {
    let lines = "[{\"file\":\"a.rs\",\"line\":1},{\"file\":\"b.rs\",\"line\":2,\"label\":\"accounts\"}]";
    let header = format!("{{\"dapple_recording\":2,\"workers\":1,\"elapsed_ns\":100000,\"lost\":0,\"lines\":{lines}}}");
    let rows = "[0,1,0,1,0,0,0,0]\n[1,1,0,1,0,0,0,0]\n[3,2,1,7,0,1,10000,85000]\n[2,1,0,1,0,0,100000,100000]\n{\"events\":4}\n";
    let recording = Recording::load(&gzip(&format!("{header}\n{rows}"))[..]).expect("it is whole");
    let faster = Change::Faster { family: "accounts".to_owned(), times: 4.0 };
    near(recording.predict(1, &[faster]).speedup, 100.0 / 43.75);
    let text = recording.snapshot().to_string();
    assert!(text.contains("accounts (b.rs:2) (state)"), "{text}");
}
