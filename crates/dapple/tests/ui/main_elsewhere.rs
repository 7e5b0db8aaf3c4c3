#[dapple::main]
async fn start() {}

fn main() {}
