#[dapple::main]
fn main() {}
