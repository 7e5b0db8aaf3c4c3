use dapple_macros as dapple;

#[dapple::main]
struct Main;

fn main() {}
