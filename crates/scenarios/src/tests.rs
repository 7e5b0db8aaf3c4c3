//! Failing seeds are kept, and written plans run.

use std::path::PathBuf;
use std::time::Instant;

use scenarios::{ALL, Scenario, Setup};

use super::*;

/// A file that does not exist so far, removed at the end of the test.
struct Temporary(PathBuf);

impl Temporary {
    fn new(test: &str) -> Temporary {
        Temporary(std::env::temp_dir().join(format!("dapple-scenarios-{test}-{}", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn calls(setup: Setup) -> Scenario {
    Scenario { name: "calls", holds: "", setup, bugs: &[] }
}

fn asked(args: &[&str]) -> Result<Asked, String> {
    parse(args.iter().map(|arg| (*arg).to_owned()))
}

#[test]
fn a_failing_seed_is_kept_until_it_does_not_fail() {
    let file = Temporary::new("kept");
    let scenario = ALL.iter().find(|scenario| scenario.name == "calls").unwrap();
    let (broken, mended) = (calls(scenario.bugs[0].1), calls(scenario.setup));
    let few = asked(&["--seeds", "3"]).unwrap();
    let read = || Kept::read(&file.0).unwrap();

    let failed = run(&broken, &few, Instant::now(), &mut read());
    assert!(failed > 0, "the first mistake of this scenario is found by the first seeds");
    let kept = read().of("calls");
    assert_eq!(kept.len() as u64, failed);

    let none = asked(&["--seeds", "0"]).unwrap();
    assert_eq!(run(&broken, &none, Instant::now(), &mut read()), failed, "only seeds that failed before");
    let certain = asked(&["--seeds", "0", "--seed", "1"]).unwrap();
    assert_eq!(run(&broken, &certain, Instant::now(), &mut read()), 0, "certain seeds are asked for");
    assert_eq!(read().of("calls"), kept);

    assert_eq!(run(&mended, &none, Instant::now(), &mut read()), 0);
    assert_eq!(read().of("calls"), [0; 0]);
}

#[test]
fn the_file_has_a_bounded_number_of_seeds_once_each() {
    let file = Temporary::new("bounded");
    std::fs::write(&file.0, "calls 7\nno line of a seed\nlease 8\n").unwrap();
    let mut kept = Kept::read(&file.0).unwrap();
    for seed in (0..100).chain(0..100) {
        kept.add("calls", seed).unwrap();
    }
    let all = Kept::read(&file.0).unwrap();
    assert_eq!((all.of("calls").len(), all.of("calls")[0], all.of("lease")), (kept::KEPT_MAX, 7, vec![8]));
}

#[test]
fn a_written_plan_replaces_that_of_the_seed() {
    let file = Temporary::new("plan");
    std::fs::write(&file.0, "# for an hour\nat 1ms, for 3600s: server is cut off\n").unwrap();
    let path = file.0.to_str().unwrap();
    let scenario = ALL.iter().find(|scenario| scenario.name == "calls").unwrap();
    let plan = asked(&["calls", "--plan", path]).unwrap().plan.unwrap();
    assert_eq!(replay(scenario, &plan, 1), 1, "the clients get no answers");
    assert_eq!(replay(scenario, &Plan::default(), 1), 0);

    let problem = |args: &[&str]| asked(args).err().unwrap();
    assert!(problem(&["--plan", path]).contains("the name of one scenario"));
    assert!(problem(&["calls", "--plan"]).contains("needs a value"));
    std::fs::write(&file.0, "server is cut off\n").unwrap();
    assert!(problem(&["calls", "--plan", path]).contains("line 1 is no fault"));
}

#[test]
fn outcomes_come_in_the_order_of_the_seeds() {
    let setup = ALL.iter().find(|scenario| scenario.name == "calls").unwrap().setup;
    let mut seen = Vec::new();
    let none = parallel::in_order(3..40, setup, |outcome| {
        seen.push(outcome.seed);
        ControlFlow::<()>::Continue(())
    });
    assert_eq!((none, seen), (None, (3..40).collect::<Vec<_>>()));
    let endless = 1..;
    let found = parallel::in_order(endless, setup, |outcome| {
        if outcome.seed == 7 { ControlFlow::Break(7) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(found, Some(7));
}

#[test]
fn flags_that_say_nothing_are_refused() {
    for (args, why) in [
        (&["--minutes", "0"][..], "--minutes: nothing would run"),
        (&["--seeds", "--hash"], "--seeds needs a value"),
        (&["--seed"], "--seed needs a value"),
        (&["--seeds", "many"], "\"many\" is no number"),
        (&["--bugs", "--minutes", "1"], "--minutes does not go with --bugs"),
        (&["lease", "--timeline", "file"], "name the scenario, and give --seed"),
        (&["leese"], "no scenario or flag \"leese\""),
    ] {
        let refused = asked(args).err().unwrap_or_else(|| panic!("{args:?} is taken"));
        assert!(refused.contains(why), "{args:?}: {refused}");
    }
    assert!(asked(&["--seeds", "9", "--minutes", "1", "--hash"]).is_ok());
}

#[test]
fn the_last_seed_of_all_can_be_run() {
    let file = Temporary::new("last");
    let last = asked(&["--seeds", "1", "--seed", &u64::MAX.to_string()]).unwrap();
    let ends = |sim: &mut dapple_sim::Simulation| sim.client("client", || async { panic!("on purpose") });
    let mut kept = Kept::read(&file.0).unwrap();
    assert_eq!(run(&calls(ends), &last, Instant::now(), &mut kept), 1, "it ran, and failed");
}
