//! What must not compile, and what the compiler says then.
//!
//! The messages in `tests/ui/*.stderr` are those of Rust 1.95. A later one may word some of them differently: look at
//! the difference that the test prints, and accept it with `TRYBUILD=overwrite`.

/// The programs in `tests/ui` are refused.
#[test]
fn what_must_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
