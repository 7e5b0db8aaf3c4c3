//! Files: what was saved comes back, and nothing else is taken for a recording.

use dapple_insight::{LoadError, Recording};

use crate::program::{Call, Program, US, gzip};

fn file() -> Vec<u8> {
    let mut program = Program::new(2);
    for n in 0..200_u64 {
        let (accepted, started, ended) = (n * US, n * US, n * US + 500);
        let call = Call { cause: 0, color: n % 7, worker: 0, file: "src/a.rs", accepted, started, ended };
        let call = program.call(call);
        program.in_line(call, 99, 0, "src/b.rs", n * US + 100, n * US + 200);
    }
    program.file()
}

#[test]
fn what_was_saved_comes_back() {
    let recording = Recording::load(&file()[..]).unwrap();
    let mut saved = Vec::new();
    recording.save(&mut saved).unwrap();
    assert_eq!(Recording::load(&saved[..]).unwrap(), recording);
    assert_eq!(recording.workers(), 2);
}

#[test]
fn a_file_that_was_cut_off_is_refused() {
    let file = file();
    for len in (0..file.len()).step_by(7) {
        let error = Recording::load(&file[..len]).expect_err("it is not whole");
        assert!(matches!(error, LoadError::Foreign | LoadError::Damaged(_)), "{len}: {error:?}");
    }
}

#[test]
fn a_file_that_was_changed_is_refused() {
    let file = file();
    let whole = Recording::load(&file[..]).unwrap();
    for at in (12..file.len()).step_by(11) {
        let mut changed = file.clone();
        changed[at] ^= 0x10;
        // A bit that gzip does not use changes nothing.
        assert!(Recording::load(&changed[..]).map_or(true, |same| same == whole), "byte {at}");
    }
}

#[test]
fn other_files_and_versions_are_refused_by_a_sentence() {
    let text = |file: &[u8]| Recording::load(file).expect_err("it is none").to_string();
    assert_eq!(text(b"hello"), "it is no recording: make one with `dapple record`");
    assert_eq!(text(&gzip("hello\n")), "it is no recording: make one with `dapple record`");
    let version = gzip("{\"dapple_recording\":7}\n");
    assert_eq!(text(&version), "it has version 7 of the format, and this program reads version 2: record again");
    let header = "{\"dapple_recording\":2,\"workers\":1,\"elapsed_ns\":5,\"lost\":0,\"lines\":[]}\n";
    for rest in
        ["", "{\"events\":1}\n", "[0,1,0,1,0,0,1,1]\n{\"events\":1}\n", "[9,1,0,1,0,0,1,1]\n{\"events\":1}\n", "x\n"]
    {
        let error = text(&gzip(&format!("{header}{rest}")));
        assert!(error.starts_with("it was cut off or changed, at event"), "{rest}: {error}");
    }
}

/// A file that was written by hand has a right checksum.
#[test]
fn numbers_that_no_program_has_are_refused() {
    let rest = "[0,1,0,1,0,0,1,1]\n[1,1,0,1,0,0,2,2]\n{\"events\":2}\n";
    let load = |workers: u64, elapsed_ns: u64| {
        let lines = "[{\"file\":\"a.rs\",\"line\":1}]";
        let header = format!(
            "{{\"dapple_recording\":2,\"workers\":{workers},\"elapsed_ns\":{elapsed_ns},\"lost\":0,\"lines\":{lines}}}\n"
        );
        Recording::load(&gzip(&format!("{header}{rest}"))[..])
    };
    for (workers, elapsed_ns) in
        [(0, 100), (100_000_000_000, 100), (9_000_000_000_000_000_000, 100), (1, u64::MAX), (1, 3_600_000_000_001)]
    {
        assert!(matches!(load(workers, elapsed_ns), Err(LoadError::Damaged(0))), "{workers} {elapsed_ns}");
    }
    // The end lies before the events: odd, and harmless.
    let snapshot = load(65_536, 1).expect("it is possible").snapshot();
    assert_eq!(snapshot.workers.len(), 65_536);
}
