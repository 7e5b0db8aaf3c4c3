//! The fields of replies with files: common ones, and those that the rules of the configuration
//! add.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use dapple_http::coding::Coding;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, LAST_MODIFIED, VARY,
    X_CONTENT_TYPE_OPTIONS,
};

use super::content_type;
use super::meta::{Meta, State};
use super::rules::Rules;
use crate::http::clock::unix_s;

/// The settings that decide the fields of a reply with a file.
pub(crate) struct Labels {
    /// Replaced as a whole when the configuration is read again.
    pub(crate) rules: ArcSwap<Rules>,
    /// Whether clients get encoded content if they accept it.
    pub(crate) negotiates: AtomicBool,
}

impl Labels {
    /// The fields of the unencoded file `name`, requested as `key`.
    pub(crate) fn plain(&self, key: &[u8], name: &[u8], state: &State) -> Meta {
        let content_type = content_type::of(name);
        let tag = state.tag();
        self.meta(key, &content_type, None, &format!("\"{tag}\""), Some(state.stamp.modified_s()))
    }

    /// The fields of the same content with a coding; `tag` is the inner part of the entity tag.
    pub(crate) fn coded(&self, key: &[u8], plain: &Meta, coding: Coding, tag: &str, modified_s: Option<u64>) -> Meta {
        self.meta(key, &plain.content_type, Some(coding), &format!("\"{tag}\""), modified_s)
    }

    /// The fields of a page that is not a file.
    pub(crate) fn made(&self, key: &[u8], content_type: &'static str, tag: &str) -> Meta {
        self.meta(key, &HeaderValue::from_static(content_type), None, &format!("\"{tag}\""), None)
    }

    fn meta(
        &self,
        key: &[u8],
        kind: &HeaderValue,
        coding: Option<Coding>,
        etag: &str,
        modified_s: Option<u64>,
    ) -> Meta {
        // A file cannot have changed after its reply; a later time is reported as now (RFC 9110,
        // 8.8.2.1).
        let modified_s = modified_s.map(|modified_s| modified_s.min(unix_s()));
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(CONTENT_TYPE, kind.clone());
        headers.insert(ETAG, HeaderValue::try_from(etag).expect("hexadecimal digits and quotes are header characters"));
        if let Some(modified_s) = modified_s {
            headers.insert(LAST_MODIFIED, http_date(modified_s));
        }
        headers.insert(CACHE_CONTROL, REVALIDATE);
        headers.insert(ACCEPT_RANGES, BYTES);
        headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        if let Some(coding) = coding {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        }
        // Load the rules before all other settings that a reload replaces: if the rules are
        // current, no other setting can be older.
        let rules = self.rules.load();
        let negotiates = self.negotiates.load(Ordering::Acquire);
        let negotiable = negotiates && kind.to_str().is_ok_and(content_type::is_compressible);
        if negotiable {
            headers.insert(VARY, ACCEPT_ENCODING);
        }
        rules.label(key, &mut headers);
        Meta::new(headers, modified_s, negotiable, rules.generation)
    }
}

fn http_date(seconds: u64) -> HeaderValue {
    let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    HeaderValue::try_from(date).expect("an HTTP date is made of header characters")
}

/// The request field by which replies vary if codings are negotiated.
pub(crate) const ACCEPT_ENCODING: HeaderValue = HeaderValue::from_static("accept-encoding");

/// Browsers keep a page but ask each time whether it changed: a changed file shows at the next
/// reload.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

/// Ranges are counted in bytes.
const BYTES: HeaderValue = HeaderValue::from_static("bytes");

/// The content type is right; browsers need not guess from the content.
pub(crate) const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
