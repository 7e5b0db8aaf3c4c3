use dapple_macros as dapple;

#[dapple::test(workers = 2, workers = 3)]
async fn waits() {}

fn main() {}
