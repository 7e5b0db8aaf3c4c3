//! Fields that decide what a cache keeps.

use dapple_http::cache::{Control, Selection};
use dapple_http::{Field, Fields};
use http::header::VARY;
use http::{HeaderMap, HeaderValue};

/// Several fields mean the same as one list of them; ages never exceed the maximum; a response may
/// answer the request that it answered.
pub(crate) fn cache(data: &[u8]) {
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').take(6).collect();
    let control = Control::parse(lines.iter().copied());
    let ages =
        [control.max_age_s, control.s_maxage_s, control.min_fresh_s, control.max_stale_s, control.stale_if_error_s];
    assert!(ages.into_iter().flatten().all(|age_s| age_s <= 1 << 31));
    // An unterminated quoted string would continue into the next field.
    if !data.contains(&b'"') && !data.contains(&b'\\') {
        assert_eq!(control, Control::parse([lines.join(&b", "[..]).as_slice()]));
        let upper = data.to_ascii_uppercase();
        assert_eq!(control, Control::parse(upper.split(|byte| *byte == b'\n').take(6)));
    }
    let mut response = HeaderMap::new();
    let vary = lines.iter().filter_map(|line| HeaderValue::from_bytes(line).ok());
    vary.for_each(|value| _ = response.append(VARY, value));
    let names = ["accept", "accept-encoding", "x", "cookie"];
    let list: Vec<_> = lines.iter().zip(names).map(|(value, name)| Field { name, value }).collect();
    let request = Fields::new(&list);
    if let Some(selection) = Selection::of(&response, request) {
        assert!(selection.matches(request));
        assert!(!response.get_all(VARY).iter().any(|line| line.as_bytes().trim_ascii() == b"*"));
    }
}
