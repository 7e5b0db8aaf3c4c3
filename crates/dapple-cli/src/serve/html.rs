//! Escapes names of files and paths for a page.

/// Escapes text for HTML content and quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '{' => escaped.push_str("&#123;"),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn characters_with_a_meaning_in_html_are_escaped() {
        assert_eq!(escape("<a href=\"x\" o='y'>&\n"), "&lt;a href=&quot;x&quot; o=&#39;y&#39;&gt;&amp;\u{fffd}");
    }
}
