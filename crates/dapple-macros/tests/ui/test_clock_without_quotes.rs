use dapple_macros as dapple;

#[dapple::test(clock = real)]
async fn waits() {}

fn main() {}
