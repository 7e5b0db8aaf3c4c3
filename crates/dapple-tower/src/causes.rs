//! The text of an error and its causes.

use std::error::Error;

/// The text of an error and its causes, which hyper's own text omits. Does not repeat a cause that
/// the preceding text already ends with.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::with_causes;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Outer(&'static str, #[source] io::Error);

    #[test]
    fn a_cause_is_told_once() {
        for (text, expected) in [("no page", "no page: no disk"), ("no page: no disk", "no page: no disk")] {
            assert_eq!(with_causes(&Outer(text, io::Error::other("no disk"))), expected);
        }
    }
}
