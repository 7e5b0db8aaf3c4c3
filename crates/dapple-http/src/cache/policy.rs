//! Whether a response may be stored, and whether it is still fresh (RFC 9111, sections 3 and 4.2).

use http::header::{AGE, AUTHORIZATION, CACHE_CONTROL, DATE, ETAG, EXPIRES, LAST_MODIFIED, PRAGMA, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::control::{Control, SECONDS_MAX, number};
use crate::Fields;
use crate::conditional::date as seconds;

/// When a response was requested, and when its head arrived, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reception {
    /// When the request was sent.
    pub requested_ms: u64,
    /// When the head of the response arrived.
    pub received_ms: u64,
}

/// How long and how a stored response may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    received_ms: u64,
    initial_age_ms: u64,
    lifetime_ms: u64,
    no_cache: bool,
    never_stale: bool,
    stale_if_error_ms: u64,
    stale_while_revalidate_ms: u64,
    for_authorized: bool,
    is_guess: bool,
}

/// The permitted use of a stored response for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it.
    Fresh,
    /// It is stale, and the client accepts that.
    Stale,
    /// Send it, and revalidate it at the origin at the same time.
    StaleWhileRevalidate,
    /// Ask the origin first.
    Validate,
}

impl Policy {
    /// The policy of a response to `GET`; `None` if it must not be stored, or would be useless.
    ///
    /// `targets` names the targeted fields that this cache obeys, such as `CDN-Cache-Control`. The
    /// first well-formed one replaces `Cache-Control` and `Expires`, which are then ignored (RFC
    /// 9213, section 2.2).
    pub fn of(
        request: Fields<'_>,
        asked: &Control,
        status: StatusCode,
        response: &HeaderMap,
        targets: &[HeaderName],
        reception: Reception,
    ) -> Option<Policy> {
        let targeted = targets.iter().find_map(|name| Control::targeted(values(response, name)));
        let has_expires = targeted.is_none() && response.contains_key(EXPIRES);
        let control = targeted.unwrap_or_else(|| Control::parse(values(response, &CACHE_CONTROL)));
        let is_shared = control.public || control.s_maxage_s.is_some();
        let is_forbidden = asked.no_store
            || control.private
            || (control.no_store && !control.must_understand)
            || (request.first(AUTHORIZATION.as_str()).is_some() && !is_shared && !control.must_revalidate)
            || (response.contains_key(SET_COOKIE) && !is_shared);
        let is_heuristic = HEURISTIC.contains(&status.as_u16());
        let is_understood = is_heuristic || UNDERSTOOD.contains(&status.as_u16());
        let is_meant = is_heuristic || is_shared || control.max_age_s.is_some() || has_expires;
        if is_forbidden || !is_understood || !is_meant {
            return None;
        }
        let lifetime_ms = lifetime_ms(&control, has_expires, is_heuristic || control.public, response, reception);
        let is_guess = !has_expires && !is_shared && control.max_age_s.is_none();
        let policy = Policy::with(&control, lifetime_ms, is_guess, response, reception);
        let can_be_validated = response.contains_key(ETAG) || response.contains_key(LAST_MODIFIED);
        let may_be_stale = policy.stale_if_error_ms > 0 || policy.stale_while_revalidate_ms > 0;
        (policy.is_fresh(reception.received_ms) || can_be_validated || may_be_stale).then_some(policy)
    }

    fn with(control: &Control, lifetime_ms: u64, is_guess: bool, response: &HeaderMap, reception: Reception) -> Policy {
        Policy {
            received_ms: reception.received_ms,
            initial_age_ms: initial_age_ms(response, reception),
            lifetime_ms,
            no_cache: control.no_cache,
            // `s-maxage` implies `proxy-revalidate` (section 5.2.2.10).
            never_stale: control.must_revalidate || control.proxy_revalidate || control.s_maxage_s.is_some(),
            stale_if_error_ms: 1_000 * control.stale_if_error_s.unwrap_or(0),
            stale_while_revalidate_ms: 1_000 * control.stale_while_revalidate_s.unwrap_or(0),
            for_authorized: control.public || control.s_maxage_s.is_some() || control.must_revalidate,
            is_guess,
        }
    }

    /// The permitted use of the response for a request with the directives `asked`.
    pub fn verdict(&self, asked: &Control, now_ms: u64) -> Verdict {
        let age_ms = self.age_ms(now_ms);
        let is_too_old = asked.max_age_s.is_some_and(|max_s| age_ms > 1_000 * max_s)
            || asked.min_fresh_s.is_some_and(|min_s| self.lifetime_ms < age_ms + 1_000 * min_s);
        if self.no_cache || asked.no_cache {
            return Verdict::Validate;
        }
        let stale_ms = age_ms.saturating_sub(self.lifetime_ms);
        if self.is_fresh(now_ms) && !is_too_old {
            Verdict::Fresh
        } else if self.never_stale {
            Verdict::Validate
        } else if asked.max_stale_s.is_some_and(|max_s| stale_ms <= 1_000 * max_s) {
            Verdict::Stale
        } else if stale_ms < self.stale_while_revalidate_ms && !is_too_old {
            Verdict::StaleWhileRevalidate
        } else {
            Verdict::Validate
        }
    }

    /// Whether the response may replace an error of the origin (RFC 5861, section 4).
    pub fn may_replace_error(&self, asked: &Control, now_ms: u64) -> bool {
        let allowed_ms = self.stale_if_error_ms.max(1_000 * asked.stale_if_error_s.unwrap_or(0));
        let stale_ms = self.age_ms(now_ms).saturating_sub(self.lifetime_ms);
        !self.no_cache && !self.never_stale && !asked.no_cache && stale_ms < allowed_ms
    }

    /// Whether an unreachable origin must be reported as 504 (section 5.2.2.2).
    pub fn is_never_stale(&self) -> bool {
        self.never_stale
    }

    /// Whether the response gives neither its freshness nor a sign that it is the same for all
    /// users. Then it may depend on cookies, even if `Vary` does not name them: many servers rely
    /// on caches to leave such responses alone.
    pub fn is_guess(&self) -> bool {
        self.is_guess
    }

    /// Whether requests with `Authorization` may be answered with it (section 3.5, applied more
    /// strictly: also if the stored response was requested without).
    pub fn is_for_authorized(&self) -> bool {
        self.for_authorized
    }

    /// The age of the response in seconds, the value of `Age`.
    pub fn age_s(&self, now_ms: u64) -> u64 {
        (self.age_ms(now_ms) / 1_000).min(SECONDS_MAX)
    }

    /// The remaining freshness in seconds; negative when it is stale.
    pub fn fresh_for_s(&self, now_ms: u64) -> i64 {
        (self.lifetime_ms as i64 - self.age_ms(now_ms) as i64) / 1_000
    }

    fn is_fresh(&self, now_ms: u64) -> bool {
        self.lifetime_ms > self.age_ms(now_ms)
    }

    fn age_ms(&self, now_ms: u64) -> u64 {
        self.initial_age_ms + now_ms.saturating_sub(self.received_ms)
    }
}

impl Control {
    /// The directives of a request. `Pragma: no-cache` counts only without a `Cache-Control`
    /// (section 5.4).
    pub fn of_request(request: Fields<'_>) -> Control {
        let mut values = request.all(CACHE_CONTROL.as_str()).peekable();
        if values.peek().is_some() {
            return Control::parse(values);
        }
        let no_cache = request
            .all(PRAGMA.as_str())
            .flat_map(|value| value.split(|byte| *byte == b','))
            .any(|pragma| pragma.trim_ascii().eq_ignore_ascii_case(b"no-cache"));
        Control { no_cache, ..Control::default() }
    }
}

fn values<'a>(response: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    response.get_all(name).into_iter().map(HeaderValue::as_bytes)
}

/// Section 4.2.3.
fn initial_age_ms(response: &HeaderMap, reception: Reception) -> u64 {
    let apparent_ms = date_ms(response).map_or(0, |date| reception.received_ms.saturating_sub(date));
    // A clock of whole seconds is half a second late on average; a response made just now has no
    // age.
    let apparent_ms = if apparent_ms < 1_000 { 0 } else { apparent_ms };
    let age_s = response.get(AGE).and_then(|age| number(first_of(age.as_bytes())));
    let delay_ms = reception.received_ms.saturating_sub(reception.requested_ms);
    apparent_ms.max(1_000 * age_s.unwrap_or(0) + delay_ms)
}

/// Section 4.2.1.
fn lifetime_ms(
    control: &Control,
    has_expires: bool,
    is_heuristic: bool,
    response: &HeaderMap,
    reception: Reception,
) -> u64 {
    if let Some(max_s) = control.s_maxage_s.or(control.max_age_s) {
        return 1_000 * max_s;
    }
    let date_ms = date_ms(response).unwrap_or(reception.received_ms);
    let mut expires = response.get_all(EXPIRES).iter();
    if has_expires && let Some(expires_at) = expires.next() {
        // An invalid date, such as `0`, is in the past (section 5.3); so are two that differ.
        let is_one = expires.all(|other| other == expires_at);
        let at_s = seconds(expires_at.as_bytes()).filter(|_| is_one).unwrap_or(0);
        return (1_000 * at_s).saturating_sub(date_ms).min(1_000 * SECONDS_MAX);
    }
    let modified = response.get(LAST_MODIFIED).and_then(|date| seconds(date.as_bytes()));
    match modified.filter(|_| is_heuristic) {
        Some(modified_s) => (date_ms.saturating_sub(1_000 * modified_s) / 10).min(HEURISTIC_MAX_MS),
        None => 0,
    }
}

fn date_ms(response: &HeaderMap) -> Option<u64> {
    response.get(DATE).and_then(|date| seconds(date.as_bytes())).map(|date| 1_000 * date)
}

fn first_of(list: &[u8]) -> &[u8] {
    list.split(|byte| *byte == b',').next().unwrap_or(list).trim_ascii()
}

/// Statuses that may be stored by default (RFC 9110, section 15.1). Partial responses are not
/// stored.
const HEURISTIC: [u16; 11] = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];

/// Statuses that may be stored if the response says so.
const UNDERSTOOD: [u16; 3] = [302, 303, 307];

/// The longest lifetime of a guess: a day.
const HEURISTIC_MAX_MS: u64 = 24 * 3_600 * 1_000;

#[cfg(test)]
mod tests;
