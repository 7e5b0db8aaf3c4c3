use dapple_macros as dapple;

#[dapple::test(sim, seeds = 0)]
async fn waits() {}

fn main() {}
