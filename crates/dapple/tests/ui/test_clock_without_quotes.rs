#[dapple::test(clock = real)]
async fn waits() {}

fn main() {}
