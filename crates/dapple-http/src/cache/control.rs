//! `Cache-Control` of requests and responses (RFC 9111, section 5.2), and targeted fields for some
//! caches only (RFC 9213).

use sfv::{BareItem, Dictionary, ListEntry, Parser};

/// The directives of one message, as far as a shared cache acts on them. Times are in seconds.
///
/// An ambiguous field is read in the stricter way: `private` and `no-cache` with field names count
/// for the whole response, the smallest of several ages counts, and an invalid age is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Do not store the response.
    pub no_store: bool,
    /// Ask the origin before use.
    pub no_cache: bool,
    /// For one user only.
    pub private: bool,
    /// For all users, despite other restrictions.
    pub public: bool,
    /// Never use it stale.
    pub must_revalidate: bool,
    /// A shared cache must never use it stale.
    pub proxy_revalidate: bool,
    /// A cache that knows the status ignores `no_store`.
    pub must_understand: bool,
    /// Do not transform the body.
    pub no_transform: bool,
    /// The client accepts only a cached response.
    pub only_if_cached: bool,
    /// How long the response is fresh; in a request, the age that the client accepts.
    pub max_age_s: Option<u64>,
    /// The same for shared caches.
    pub s_maxage_s: Option<u64>,
    /// How long the client wants the response to stay fresh.
    pub min_fresh_s: Option<u64>,
    /// How stale a response the client accepts.
    pub max_stale_s: Option<u64>,
    /// How long it may be used stale if the origin fails (RFC 5861).
    pub stale_if_error_s: Option<u64>,
    /// How long it may be used stale during a revalidation (RFC 5861).
    pub stale_while_revalidate_s: Option<u64>,
}

impl Control {
    /// Reads the values of all `Cache-Control` fields of a message.
    ///
    /// ```
    /// use dapple_http::cache::Control;
    ///
    /// let control = Control::parse([&b"max-age=60, Private=\"a, b\""[..], b"MAX-AGE=\"10\""]);
    /// assert!(control.private);
    /// assert_eq!(control.max_age_s, Some(10));
    /// ```
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Control {
        let mut control = Control::default();
        for value in values {
            let mut rest = value;
            while let Some((name, argument)) = next_directive(&mut rest) {
                control.apply(name, argument);
            }
        }
        control
    }

    /// Reads the lines of a targeted field such as `CDN-Cache-Control`, a dictionary of structured
    /// fields (RFC 9213, section 2.1). `None` if it is absent, empty or malformed, which has the
    /// same effect.
    ///
    /// A value of the wrong type is read as in [`parse`](Self::parse): the cache keeps less.
    ///
    /// ```
    /// use dapple_http::cache::Control;
    ///
    /// let control = Control::targeted([&b"max-age=60, must-revalidate"[..]]).unwrap();
    /// assert!(control.must_revalidate);
    /// assert_eq!(control.max_age_s, Some(60));
    /// assert_eq!(Control::targeted([&b"Max-Age = 60"[..]]), None);
    /// ```
    pub fn targeted<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Control> {
        let lines: Vec<&[u8]> = values.into_iter().collect();
        let members: Dictionary = Parser::new(&lines.join(&b", "[..])).parse().ok()?;
        let mut control = Control::default();
        for (name, value) in &members {
            let item = match value {
                ListEntry::Item(item) => Some(&item.bare_item),
                ListEntry::InnerList(_) => None,
            };
            match item {
                Some(BareItem::Boolean(false)) => {}
                Some(BareItem::Boolean(true)) => control.apply(name.as_str().as_bytes(), None),
                Some(BareItem::Integer(number)) => {
                    control.apply_typed(name.as_str(), number.to_string().as_bytes());
                }
                _ => control.apply_typed(name.as_str(), b""),
            }
        }
        (!members.is_empty()).then_some(control)
    }

    /// Applies a directive with a value. `public` takes none, so with a value it has no effect.
    fn apply_typed(&mut self, name: &str, argument: &[u8]) {
        if name != "public" {
            self.apply(name.as_bytes(), Some(argument));
        }
    }

    fn apply(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let flag = match name.to_ascii_lowercase().as_slice() {
            b"no-store" => &mut self.no_store,
            b"no-cache" => &mut self.no_cache,
            b"private" => &mut self.private,
            b"public" => &mut self.public,
            b"must-revalidate" => &mut self.must_revalidate,
            b"proxy-revalidate" => &mut self.proxy_revalidate,
            b"must-understand" => &mut self.must_understand,
            b"no-transform" => &mut self.no_transform,
            b"only-if-cached" => &mut self.only_if_cached,
            b"max-age" => return smaller(&mut self.max_age_s, seconds(argument)),
            b"s-maxage" => return smaller(&mut self.s_maxage_s, seconds(argument)),
            b"stale-if-error" => return smaller(&mut self.stale_if_error_s, seconds(argument)),
            b"stale-while-revalidate" => return smaller(&mut self.stale_while_revalidate_s, seconds(argument)),
            // An invalid number counts as the largest one, so no response is fresh enough.
            b"min-fresh" => return self.min_fresh_s = Some(argument.and_then(number).unwrap_or(SECONDS_MAX)),
            b"max-stale" => {
                let limit = argument.map_or(SECONDS_MAX, |argument| number(argument).unwrap_or(0));
                return smaller(&mut self.max_stale_s, limit);
            }
            _ => return,
        };
        *flag = true;
    }
}

fn smaller(known: &mut Option<u64>, seconds: u64) {
    *known = Some(known.map_or(seconds, |known| known.min(seconds)));
}

fn seconds(argument: Option<&[u8]>) -> u64 {
    argument.and_then(number).unwrap_or(0)
}

/// Digits only; a number that is too large counts as the largest (RFC 9111, section 1.2.2).
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| all_digits)?;
    Some(text.parse().unwrap_or(SECONDS_MAX).min(SECONDS_MAX))
}

/// Takes one `name` or `name=argument` off a list, and removes the quotes of the argument.
fn next_directive<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    let start = rest.iter().position(|byte| !matches!(byte, b',' | b' ' | b'\t'))?;
    let text = &rest[start..];
    let name_len = text.iter().position(|byte| matches!(byte, b',' | b'=')).unwrap_or(text.len());
    let name = text[..name_len].trim_ascii();
    let Some((b'=', after)) = text[name_len..].split_first() else {
        *rest = &text[name_len..];
        return Some((name, None));
    };
    let after = after.trim_ascii_start();
    let (argument, len) = match after.split_first() {
        Some((b'"', quoted)) => {
            let end = end_of_quoted(quoted);
            (&quoted[..end], (end + 2).min(after.len()))
        }
        _ => {
            let end = after.iter().position(|byte| *byte == b',').unwrap_or(after.len());
            (after[..end].trim_ascii(), end)
        }
    };
    // Text between the argument and the next comma belongs to neither.
    let behind = &after[len..];
    *rest = &behind[behind.iter().position(|byte| *byte == b',').unwrap_or(behind.len())..];
    Some((name, Some(argument)))
}

/// The end of a quoted string that began before `text`; the end of the text if it is unterminated.
fn end_of_quoted(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// Some 68 years, "greater than anything" in the words of RFC 9111, section 1.2.2.
pub(super) const SECONDS_MAX: u64 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::{Control, SECONDS_MAX};

    fn parse(value: &str) -> Control {
        Control::parse([value.as_bytes()])
    }

    #[test]
    fn names_have_no_case_and_arguments_may_be_quoted() {
        let control = parse("No-Store ,PRIVATE, s-maxage = \"30\" , max-age=5");
        assert!(control.no_store && control.private);
        assert_eq!((control.s_maxage_s, control.max_age_s), (Some(30), Some(5)));
    }

    #[test]
    fn a_comma_in_quotes_separates_nothing() {
        let control = parse("no-cache=\"set-cookie, no-store\", x=\"a\\\", private\", public");
        assert!(control.no_cache && control.public);
        assert!(!control.no_store && !control.private);
    }

    #[test]
    fn what_is_broken_keeps_less() {
        for (value, max_age_s) in [
            ("max-age", Some(0)),
            ("max-age=", Some(0)),
            ("max-age=-1", Some(0)),
            ("max-age=1.5", Some(0)),
            ("max-age=+5", Some(0)),
            ("max-age=60, max-age=3", Some(3)),
            ("max-age=99999999999999999999999", Some(SECONDS_MAX)),
            ("xmax-age=5", None),
            ("max-age =7", Some(7)),
        ] {
            assert_eq!(parse(value).max_age_s, max_age_s, "{value}");
        }
    }

    #[test]
    fn a_list_may_be_odd() {
        for value in ["", ",", " , ,", "=", "=,=", "\"", "a=\"", "a=\"\\", "a=\"b\"c", ",no-store,,"] {
            let control = parse(value);
            assert_eq!(control.no_store, value.contains("no-store"), "{value}");
        }
        assert_eq!(parse("a=\"b\"c, max-age=1").max_age_s, Some(1));
    }

    fn targeted(lines: &[&str]) -> Option<Control> {
        Control::targeted(lines.iter().map(|line| line.as_bytes()))
    }

    #[test]
    fn targeted_fields_are_dictionaries() {
        let control = targeted(&["max-age=60, private=\"a\", x=?0", "no-cache;a=b, no-store=?0"]).unwrap();
        assert!(control.private && control.no_cache && !control.no_store);
        assert_eq!(control.max_age_s, Some(60));
        assert_eq!(targeted(&["max-age=1, max-age=99999999999"]).unwrap().max_age_s, Some(SECONDS_MAX));
        for malformed in
            [&[][..], &[""], &[" "], &["max-age=1, &&&"], &["MaX-aGe=1"], &["max-age =1"], &["max-age= 1"], &["a,"]]
        {
            assert_eq!(targeted(malformed), None, "{malformed:?}");
        }
    }

    #[test]
    fn a_value_of_another_type_keeps_less() {
        for value in ["max-age=\"60\"", "max-age=1.5", "max-age=-1", "max-age", "max-age=a", "max-age=(60)"] {
            assert_eq!(targeted(&[value]).unwrap().max_age_s, Some(0), "{value}");
        }
        let control = targeted(&["no-store=1, private=a, public=1"]).unwrap();
        assert!(control.no_store && control.private && !control.public);
    }

    #[test]
    fn what_clients_say() {
        assert_eq!(parse("max-stale").max_stale_s, Some(SECONDS_MAX));
        assert_eq!(parse("max-stale=9").max_stale_s, Some(9));
        assert_eq!(parse("max-stale=x").max_stale_s, Some(0));
        assert_eq!(parse("min-fresh=x").min_fresh_s, Some(SECONDS_MAX));
        assert!(parse("only-if-cached").only_if_cached);
    }
}
