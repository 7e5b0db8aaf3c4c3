use dapple_macros as dapple;

#[dapple::test(sim)]
fn waits() {}

fn main() {}
