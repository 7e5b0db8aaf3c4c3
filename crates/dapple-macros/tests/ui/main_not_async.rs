use dapple_macros as dapple;

#[dapple::main]
fn main() {}
