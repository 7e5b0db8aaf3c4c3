use dapple_macros as dapple;

#[dapple::test]
async fn waits<T>() {}

fn main() {}
