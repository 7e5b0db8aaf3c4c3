#[dapple::main]
async fn main(_arguments: Vec<String>) {}
