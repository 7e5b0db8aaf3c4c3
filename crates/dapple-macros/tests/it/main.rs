//! How the attributes are not to be used. What they do is tested in `dapple`, whose users write them as `dapple::main` and
//! `dapple::test`; here, as a program that must not compile then needs none of the crates that `dapple` needs.

#[test]
fn what_must_not_compile_does_not() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
