use dapple_macros as dapple;

#[dapple::main]
async fn main(_arguments: Vec<String>) {}
