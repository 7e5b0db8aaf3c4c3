//! The configuration's rules for certain paths: redirects, header fields, and error pages.
//!
//! Every type checks itself while it is read, so that a mistake is reported at its place in the
//! file.

use std::collections::BTreeMap;

use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, DATE, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;

use super::path::encode;
use super::pattern::Pattern;

/// All rules of a site. The first matching redirect applies, and every matching header rule, in
/// order.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Rules {
    pub(crate) redirect: Vec<Redirect>,
    pub(crate) header: Vec<HeaderRule>,
    pub(crate) error_pages: BTreeMap<ErrorStatus, ErrorPage>,
    /// How often rules were read before these.
    #[serde(skip)]
    pub(crate) generation: u64,
}

/// `[[redirect]]`: sends clients of a path to another one.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawRedirect")]
pub(crate) struct Redirect {
    from: Pattern,
    to: String,
    pub(crate) status: StatusCode,
}

/// `[[header]]`: fields that replies to certain paths have, or lack.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawHeaderRule")]
pub(crate) struct HeaderRule {
    path: Pattern,
    set: Vec<(HeaderName, HeaderValue)>,
    remove: Vec<HeaderName>,
}

/// A status that may have a page: `"404"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ErrorStatus(u16);

/// A file in the site: `"errors/404.html"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ErrorPage {
    /// The key of the file, as in a request, without the leading slash.
    pub(crate) key: String,
}

impl Rules {
    /// The redirect for a path, if there is one.
    pub(crate) fn redirect(&self, key: &[u8]) -> Option<(StatusCode, String)> {
        self.redirect.iter().find_map(|redirect| {
            let rest = redirect.from.rest(key)?;
            Some((redirect.status, redirect.to.replacen('*', &encode(rest), 1)))
        })
    }

    /// Sets and removes the fields of replies to a path.
    pub(crate) fn label(&self, key: &[u8], headers: &mut HeaderMap) {
        for rule in self.header.iter().filter(|rule| rule.path.rest(key).is_some()) {
            for (name, value) in &rule.set {
                headers.insert(name, value.clone());
            }
            for name in &rule.remove {
                headers.remove(name);
            }
        }
    }

    /// The files that are error pages, as paths without their leading slash.
    pub(crate) fn error_page_keys(&self) -> impl Iterator<Item = &str> {
        self.error_pages.values().map(|page| page.key.as_str())
    }

    /// The page for a status, as a path without its leading slash.
    pub(crate) fn error_page(&self, status: StatusCode) -> Option<&str> {
        self.error_pages.get(&ErrorStatus(status.as_u16())).map(|page| page.key.as_str())
    }
}

/// An error in a rule, and what to write instead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuleError {
    #[error("{0:?} does not begin with a slash; write \"/{0}\"")]
    Slash(String),
    #[error("{0:?} has more than one *; leave one, which stands for anything")]
    Stars(String),
    #[error(
        "{0:?} is not a valid target; write a path such as \"/new/\" or an address such as \
        \"https://example.org/\""
    )]
    Target(String),
    #[error("{to:?} repeats the text of *, and {from:?} has no *; add one there, or remove this one")]
    NothingToRepeat { from: String, to: String },
    #[error("{from:?} leads to itself; write another `to`")]
    Circle { from: String },
    #[error("{0} is not a redirect; write 301, 302, 303, 307 or 308")]
    RedirectStatus(u16),
    #[error("{0:?} is not the name of a header field; write one such as \"cache-control\"")]
    HeaderName(String),
    #[error("{1:?} cannot be the value of {0}; leave out line breaks and control characters")]
    HeaderValue(String, String),
    #[error("only the server sets {0}, because messages would break otherwise; leave it out")]
    HeaderReserved(String),
    #[error("this rule changes nothing; write `set = {{ cache-control = \"max-age=3600\" }}` or `remove = [\"etag\"]`")]
    NoChange,
    #[error("{0:?} is not the status of an error; write one from \"400\" to \"599\", such as 404 = \"404.html\"")]
    ErrorStatus(String),
    #[error("{0:?} is not a file in the site; write its path from there, such as \"errors/404.html\"")]
    ErrorPage(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRedirect {
    from: String,
    to: String,
    #[serde(default = "default_status")]
    status: u16,
}

fn default_status() -> u16 {
    StatusCode::FOUND.as_u16()
}

impl TryFrom<RawRedirect> for Redirect {
    type Error = RuleError;

    fn try_from(raw: RawRedirect) -> Result<Redirect, RuleError> {
        let status = match raw.status {
            301 | 302 | 303 | 307 | 308 => StatusCode::from_u16(raw.status).expect("these are statuses"),
            other => return Err(RuleError::RedirectStatus(other)),
        };
        let from = Pattern::parse(&raw.from)?;
        let leads_away = ["http://", "https://"].iter().any(|scheme| raw.to.starts_with(scheme));
        let leads_inside = raw.to.starts_with('/') && !raw.to.starts_with("//");
        if !(leads_away || leads_inside) || HeaderValue::try_from(&raw.to).is_err() || raw.to.contains(' ') {
            return Err(RuleError::Target(raw.to));
        }
        match raw.to.matches('*').count() {
            0 => {}
            1 if from.has_star() => {}
            1 => return Err(RuleError::NothingToRepeat { from: raw.from, to: raw.to }),
            _ => return Err(RuleError::Stars(raw.to)),
        }
        if raw.from == raw.to {
            return Err(RuleError::Circle { from: raw.from });
        }
        Ok(Redirect { from, to: raw.to, status })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHeaderRule {
    path: String,
    #[serde(default)]
    set: BTreeMap<String, String>,
    #[serde(default)]
    remove: Vec<String>,
}

impl TryFrom<RawHeaderRule> for HeaderRule {
    type Error = RuleError;

    fn try_from(raw: RawHeaderRule) -> Result<HeaderRule, RuleError> {
        let path = Pattern::parse(&raw.path)?;
        if raw.set.is_empty() && raw.remove.is_empty() {
            return Err(RuleError::NoChange);
        }
        let set = raw.set.into_iter().map(|(name, value)| match HeaderValue::try_from(&value) {
            Ok(checked) => Ok((header_name(name)?, checked)),
            Err(_) => Err(RuleError::HeaderValue(name, value)),
        });
        let set = set.collect::<Result<_, _>>()?;
        let remove = raw.remove.into_iter().map(header_name).collect::<Result<_, _>>()?;
        Ok(HeaderRule { path, set, remove })
    }
}

/// Parses the name of a field that a rule may change.
fn header_name(text: String) -> Result<HeaderName, RuleError> {
    let Ok(name) = HeaderName::try_from(&text) else {
        return Err(RuleError::HeaderName(text));
    };
    if RESERVED.contains(&name) { Err(RuleError::HeaderReserved(text)) } else { Ok(name) }
}

impl TryFrom<String> for ErrorStatus {
    type Error = RuleError;

    fn try_from(text: String) -> Result<ErrorStatus, RuleError> {
        match text.parse() {
            Ok(status) if (400..=599).contains(&status) => Ok(ErrorStatus(status)),
            _ => Err(RuleError::ErrorStatus(text)),
        }
    }
}

impl TryFrom<String> for ErrorPage {
    type Error = RuleError;

    fn try_from(text: String) -> Result<ErrorPage, RuleError> {
        let key = text.strip_prefix('/').unwrap_or(&text);
        let is_file = !key.is_empty() && key.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if is_file && !key.contains('\0') {
            Ok(ErrorPage { key: key.to_owned() })
        } else {
            Err(RuleError::ErrorPage(text))
        }
    }
}

/// Fields that frame messages, or that state their time or recipient.
const RESERVED: [HeaderName; 9] =
    [CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, DATE, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

#[cfg(test)]
mod tests;
