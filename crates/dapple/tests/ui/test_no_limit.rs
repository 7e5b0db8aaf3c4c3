#[dapple::test(limit_s = 0)]
async fn waits() {}

fn main() {}
