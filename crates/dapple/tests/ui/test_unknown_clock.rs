#[dapple::test(clock = "paused")]
async fn waits() {}

fn main() {}
