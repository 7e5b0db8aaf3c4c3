use dapple_macros as dapple;

#[dapple::test(limit_s = 0)]
async fn waits() {}

fn main() {}
