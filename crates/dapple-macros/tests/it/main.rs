//! Misuse of the attributes. `dapple` tests their effects, because its users write them as
//! `dapple::main` and `dapple::test`; here, a program that must not compile needs none of the
//! crates that `dapple` needs.

#[test]
fn what_must_not_compile_does_not() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
