use dapple_macros as dapple;

#[dapple::main(workers = 0)]
async fn main() {}
