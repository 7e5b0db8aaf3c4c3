use dapple_macros as dapple;

#[dapple::test(clock = "paused")]
async fn waits() {}

fn main() {}
