//! Properties of the parsers, replayed on the corpus of the fuzzer.

mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn properties_hold_for_all_that_was_found() {
    replay::all(properties::ALL);
}
