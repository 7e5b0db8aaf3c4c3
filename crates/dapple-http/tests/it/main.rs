//! Properties of the parsers, on the bytes that fuzzing found worth keeping.

mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn properties_hold_for_all_that_was_found() {
    replay::all(properties::ALL);
}
