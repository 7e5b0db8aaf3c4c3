// No reference to pinned state gets out of the closure, on its own worker neither.

use dapple_sched::Pinned;

fn leak(state: &Pinned<String>) -> &mut String {
    state.try_with(|text| text).unwrap()
}

fn main() {}
