use dapple_macros as dapple;

#[dapple::test(start_paused = true)]
async fn waits() {}

fn main() {}
