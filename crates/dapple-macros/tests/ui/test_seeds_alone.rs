use dapple_macros as dapple;

#[dapple::test(seeds = 10)]
async fn waits() {}

fn main() {}
