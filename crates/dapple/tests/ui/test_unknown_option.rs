#[dapple::test(start_paused = true)]
async fn waits() {}

fn main() {}
