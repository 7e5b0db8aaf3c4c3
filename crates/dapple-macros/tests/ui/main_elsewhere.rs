use dapple_macros as dapple;

#[dapple::main]
async fn start() {}

fn main() {}
