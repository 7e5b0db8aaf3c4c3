use dapple_macros as dapple;

#[dapple::main(clock = "standing")]
async fn main() {}
