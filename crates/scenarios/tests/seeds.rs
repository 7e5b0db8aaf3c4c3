//! A few seeds of each scenario: `cargo xtask sim` runs more, and looks for the deliberate bugs.

use dapple_sim::check;
use scenarios::ALL;

#[test]
fn each_scenario_holds() {
    for scenario in ALL {
        check(scenario.name, 4, scenario.setup);
    }
}
