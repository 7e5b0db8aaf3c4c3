use dapple_macros as dapple;

#[dapple::main(workers = COUNT)]
async fn main() {}

const COUNT: usize = 2;
