use dapple_macros as dapple;

#[dapple::test]
async fn waits(_how_long: u32) {}

fn main() {}
