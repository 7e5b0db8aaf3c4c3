#[dapple::test]
fn waits() {}

fn main() {}
