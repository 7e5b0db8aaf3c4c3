//! Programs that ask an engine or a table for more than it can do must not compile.

#[test]
fn what_an_engine_cannot_do_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
