//! The state of a color is reached through a closure only.
use dapple_sched::Colored;

fn main() {
    let state = Colored::new(1);
    *state += 1;
    println!("{}", state.value);
}
