#[dapple::test]
async fn waits<T>() {}

fn main() {}
