use dapple_macros as dapple;

#[dapple::test]
fn waits() {}

fn main() {}
