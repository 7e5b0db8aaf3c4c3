#[dapple::main(clock = "standing")]
async fn main() {}
