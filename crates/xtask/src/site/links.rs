//! The links and headings of a Markdown page.

/// A link, by its place in the page's text.
#[derive(Debug, PartialEq)]
pub(crate) struct Link {
    /// From 1.
    pub(crate) line: usize,
    /// The bytes of `[text](target)`.
    pub(crate) whole: std::ops::Range<usize>,
    /// The text in the brackets.
    pub(crate) text: String,
    /// The target in the parentheses.
    pub(crate) target: String,
}

/// All links `[text](target)` outside of code, images included.
pub(crate) fn links(page: &str) -> Vec<Link> {
    let mut found = Vec::new();
    let prose = without_code(page);
    let mut from = 0;
    while let Some(middle) = prose[from..].find("](").map(|at| from + at) {
        from = middle + 2;
        let Some(len) = closing(&prose[from..]) else { continue };
        let start = opening(&prose[..middle]);
        let Some(start) = start else { continue };
        let line = 1 + page[..start].matches('\n').count();
        let target = page[from..from + len].to_owned();
        found.push(Link { line, whole: start..from + len + 1, text: page[start + 1..middle].to_owned(), target });
    }
    found
}

/// The length up to the parenthesis that closes a target.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 0 => return Some(at),
            b')' => depth -= 1,
            b'\n' => return None,
            _ => {}
        }
    }
    None
}

/// The position of the bracket that closes `text`.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b']' => depth += 1,
            b'[' if depth == 0 => return Some(at),
            b'[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The page with spaces in place of fenced blocks and code spans, so that positions stay the same.
fn without_code(page: &str) -> String {
    let mut prose = String::with_capacity(page.len());
    let mut is_fenced = false;
    for line in page.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        if is_fenced || is_fence {
            prose.extend(blank(line));
            is_fenced ^= is_fence;
            continue;
        }
        // A code span that continues in the next line counts as text; none here has a link in it.
        let parts: Vec<&str> = line.split('`').collect();
        for (index, part) in parts.iter().enumerate() {
            let is_code = index % 2 == 1 && index + 1 < parts.len();
            match is_code {
                true => prose.extend(blank(part)),
                false => prose.push_str(part),
            }
            if index + 1 < parts.len() {
                prose.push('`');
            }
        }
    }
    prose
}

/// As many bytes of space as the text has, with its ends of lines.
fn blank(text: &str) -> impl Iterator<Item = char> {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' })
}

/// The anchors of a page's headings, as the site and code hosts form them.
pub(crate) fn anchors(page: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut is_fenced = false;
    for line in page.lines() {
        is_fenced ^= line.trim_start().starts_with("```");
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if is_fenced || level == 0 || !line[level..].starts_with(' ') {
            continue;
        }
        let plain = anchor(&text_of(line[level..].trim()));
        let before = anchors.iter().filter(|known| *known == &plain).count();
        anchors.push(if before == 0 { plain } else { format!("{plain}-{before}") });
    }
    anchors
}

/// A heading without the targets of its links.
fn text_of(heading: &str) -> String {
    let mut text = heading.to_owned();
    for link in links(heading).iter().rev() {
        text.replace_range(link.whole.clone(), &link.text);
    }
    text
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(page: &str) -> Vec<(usize, String)> {
        links(page).into_iter().map(|link| (link.line, link.target)).collect()
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let page = "[a](b.md) `[no](x)`\n```\n[no](y)\n```\n![d\u{e9}](c.svg) and [`f(x)`](d.md#f)\n";
        let expected = [(1, "b.md".to_owned()), (5, "c.svg".to_owned()), (5, "d.md#f".to_owned())];
        assert_eq!(targets(page), expected);
        let links = links(page);
        assert_eq!(&page[links[2].whole.clone()], "[`f(x)`](d.md#f)");
        assert_eq!(links[2].text, "`f(x)`");
    }

    #[test]
    fn targets_may_have_parentheses() {
        assert_eq!(targets("[pause](crate::time::pause()) x)"), [(1, "crate::time::pause()".to_owned())]);
        assert_eq!(targets("[no end](x\ny)"), []);
    }

    #[test]
    fn anchors_are_formed_as_elsewhere() {
        let page = "# One, two: `three`\n```\n# no\n```\n## [Four](x.md)\n## Four\n#no\n";
        assert_eq!(anchors(page), ["one-two-three", "four", "four-1"]);
    }
}
