#[dapple::main]
struct Main;

fn main() {}
