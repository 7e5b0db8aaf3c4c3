use dapple_macros as dapple;

#[dapple::test(sim, workers = 2)]
async fn waits() {}

fn main() {}
