//! Programs that must not compile, and the compiler's messages.
//!
//! The messages in `tests/ui/*.stderr` are those of Rust 1.95. A later one may word some of them
//! differently: check the difference that the test prints, and accept it with `TRYBUILD=overwrite`.

/// The programs in `tests/ui` are refused.
#[test]
fn wrong_programs_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
