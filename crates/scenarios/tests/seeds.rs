//! A few seeds of each scenario: `cargo xtask sim` runs more, and looks for the deliberate bugs.

use std::cell::Cell;
use std::process::Command;
use std::thread;
use std::time::Duration;

use dapple_sim::{Simulation, check, run_seed};
use scenarios::ALL;

#[test]
fn each_scenario_holds() {
    for scenario in ALL {
        check(scenario.name, 4, scenario.setup);
    }
}

/// HTTP/2 forgets a stream one second after it has reset it, by the clock of the standard library.
#[test]
fn no_real_time_gets_in() {
    let remote = ALL.iter().find(|scenario| scenario.name == "remote").unwrap();
    let quick = run_seed(1, &remote.setup);
    let slow = run_seed(1, &|sim: &mut Simulation| {
        (remote.setup)(sim);
        let looks = Cell::new(0);
        sim.invariant(move || {
            looks.set(looks.get() + 1);
            if [12, 24].contains(&looks.get()) {
                thread::sleep(Duration::from_millis(1_010));
            }
            Ok(())
        });
    });
    assert_eq!(slow, quick);
}

/// Clocks count from the start of the process, which is another one each time.
#[test]
fn each_process_has_the_same_trace() {
    let traces = || {
        let run = Command::new(env!("CARGO_BIN_EXE_scenarios"))
            .args(["overload", "--hash", "--seeds", "1", "--seed", "4"])
            .output()
            .unwrap();
        let text = String::from_utf8(run.stdout).unwrap();
        text.lines().find(|line| line.starts_with("overload 4: trace ")).map(str::to_owned).expect(&text)
    };
    let first = traces();
    for _ in 0..7 {
        assert_eq!(traces(), first);
    }
}
