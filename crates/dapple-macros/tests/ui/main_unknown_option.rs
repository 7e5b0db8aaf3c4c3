use dapple_macros as dapple;

#[dapple::main(worker = 2)]
async fn main() {}
