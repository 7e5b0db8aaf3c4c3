//! Rules for programs that pass messages on, such as proxies: which fields are of one connection, what a shared cache may keep (RFC
//! 9111), and which addresses are not of the public internet.
//!
//! ```
//! use dapple_client::relay::{Control, Reception, Verdict, asked, policy};
//! use dapple_client::{HeaderMap, StatusCode};
//!
//! let (request, mut response) = (HeaderMap::new(), HeaderMap::new());
//! response.insert("cache-control", "max-age=60".parse()?);
//! let reception = Reception { requested_ms: 1_000_000, received_ms: 1_000_020 };
//! let policy = policy(&request, StatusCode::OK, &response, reception).expect("it may be kept");
//! assert_eq!(policy.verdict(&asked(&request), 1_059_000), Verdict::Fresh);
//! assert_eq!(policy.verdict(&asked(&request), 1_061_000), Verdict::Validate);
//! # Ok::<(), http::header::InvalidHeaderValue>(())
//! ```

mod memo;
mod room;
mod send;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dapple_http::{Field, Fields, conditional};
use dapple_sched::environment;
use http::header::{
    ACCEPT_RANGES, AUTHORIZATION, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE,
    COOKIE, ETAG, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, PRAGMA, RANGE,
    SET_COOKIE, VARY, VIA,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode, Uri, Version};

use crate::{ConnectError, Error};

pub use dapple_http::cache::{Control, Policy, Reception, Verdict, is_about, merged};
pub use dapple_http::hops::strip;

pub use self::memo::Memo;
pub use self::room::{Place, Room};
pub use self::send::{Passed, Relay, Relayed, now_ms};

/// The kind of an address that is not of the public internet. A proxy that connects to one lends its clients its own place in the
/// network.
///
/// ```
/// use dapple_client::relay::AddressKind;
///
/// assert_eq!(AddressKind::of("::ffff:127.0.0.1".parse()?), Some(AddressKind::Loopback));
/// assert_eq!(AddressKind::of("169.254.169.254".parse()?), Some(AddressKind::LinkLocal));
/// assert_eq!(AddressKind::of("1.1.1.1".parse()?), None);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// This machine.
    Loopback,
    /// A network behind a router of its own.
    Private,
    /// The local link; in clouds, it leads to the machine's own credentials.
    LinkLocal,
    /// An address of many hosts, for documentation, or not assigned.
    Special,
}

impl AddressKind {
    /// The kind of an address; `None` if it is of the public internet. Look at the address that is connected to, not at an earlier
    /// answer for its name: [`ClientBuilder::allow`](crate::ClientBuilder::allow).
    #[must_use]
    pub fn of(ip: IpAddr) -> Option<AddressKind> {
        match unwrapped(ip) {
            IpAddr::V4(ip) => kind_of_v4(ip),
            IpAddr::V6(ip) => kind_of_v6(ip),
        }
    }
}

/// The wishes of a request's `Cache-Control`, or of its `Pragma`.
#[must_use]
pub fn asked(request: &HeaderMap) -> Control {
    Control::of_request(Fields::new(&fields(request)))
}

/// The policy of a response to `GET`; `None` if a shared cache must not keep it, or it would be useless there. As [`Policy::of`],
/// without targeted fields.
#[must_use]
pub fn policy(request: &HeaderMap, status: StatusCode, response: &HeaderMap, reception: Reception) -> Option<Policy> {
    Policy::of(Fields::new(&fields(request)), &asked(request), status, response, &[], reception)
}

/// The URL of a request in absolute form, with its host in lower case and without the port 80: the one to ask for, and a key for a
/// cache. `None` for other forms, as of requests that are for the proxy itself.
///
/// ```
/// use dapple_client::relay::target;
///
/// let target = |text: &'static str| target(&http::Uri::from_static(text));
/// assert_eq!(target("http://A.b:80?c").as_deref(), Some("http://a.b/?c"));
/// assert_eq!((target("/a"), target("a.b:443"), target("http://user@a.b/")), (None, None, None));
/// ```
#[must_use]
pub fn target(uri: &Uri) -> Option<String> {
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?.as_str().to_ascii_lowercase());
    if authority.contains('@') {
        return None;
    }
    let port = if scheme == "https" { ":443" } else { ":80" };
    let authority = authority.strip_suffix(port).unwrap_or(&authority);
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let slash = if path.starts_with('/') { "" } else { "/" };
    Some(format!("{scheme}://{authority}{slash}{path}"))
}

/// The name of a proxy in `Via`, different from that of every other proxy, by which it notices loops (RFC 9110, section 7.6.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via(String);

impl Via {
    /// Creates a new name: the program's, and a random number.
    ///
    /// # Panics
    /// If the name of the program is none of letters, digits and `-`.
    #[must_use]
    pub fn random(program: &str) -> Via {
        assert!(
            !program.is_empty() && program.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
            "{program:?} is not a name of letters, digits and `-`"
        );
        Via(format!("{program}-{:08x}", environment::random() as u32))
    }

    /// Whether a message has come through this proxy before, by the values of its `Via` fields.
    #[must_use]
    pub fn is_in<'a>(&self, values: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let mut hops = values.into_iter().flat_map(|value| value.split(|byte| *byte == b','));
        hops.any(|hop| hop.split(u8::is_ascii_whitespace).any(|word| word == self.0.as_bytes()))
    }

    /// Adds this hop, and the version in which the message arrived.
    pub fn add_to(&self, headers: &mut HeaderMap, version: Version) {
        let version = match version {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2",
            _ => "1.1",
        };
        if let Ok(value) = HeaderValue::from_str(&format!("{version} {}", self.0)) {
            headers.append(VIA, value);
        }
    }
}

/// The media type of a message in lower case, and its charset.
///
/// ```
/// let mut headers = dapple_client::HeaderMap::new();
/// headers.insert("content-type", "Text/HTML; charset=\"utf-8\"".parse()?);
/// assert_eq!(dapple_client::relay::media_type(&headers), Some(("text/html".to_owned(), Some("utf-8".to_owned()))));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[must_use]
pub fn media_type(headers: &HeaderMap) -> Option<(String, Option<String>)> {
    let mut words = headers.get(CONTENT_TYPE)?.to_str().ok()?.split(';').map(str::trim);
    let kind = words.next()?.to_ascii_lowercase();
    let charset = words.find_map(|word| {
        let (name, value) = word.split_once('=')?;
        name.eq_ignore_ascii_case("charset").then(|| value.trim_matches('"').to_owned())
    });
    Some((kind, charset))
}

/// The reason why a proxy must not, or cannot, transform a response (RFC 9110, section 7.7): the request or the response forbids it;
/// the body is a part, or in a coding; it is a file to be kept as it is.
#[must_use]
pub fn obstacle(
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    response: &HeaderMap,
) -> Option<&'static str> {
    let control = Control::parse(response.get_all(CACHE_CONTROL).iter().map(HeaderValue::as_bytes));
    let is_file = |value: &HeaderValue| value.as_bytes().to_ascii_lowercase().starts_with(b"attachment");
    let obstacles = [
        (control.no_transform || asked(request).no_transform, "no-transform"),
        (status == StatusCode::PARTIAL_CONTENT, "it is a part"),
        (
            [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status) || method == Method::HEAD,
            "it has no body",
        ),
        (response.contains_key(CONTENT_ENCODING), "its coding is not known"),
        (response.get(CONTENT_DISPOSITION).is_some_and(is_file), "it is a file"),
    ];
    obstacles.into_iter().find(|(is_there, _)| *is_there).map(|(_, why)| why)
}

/// The status by which a proxy tells its client of an error.
#[must_use]
pub fn status_of(error: &Error) -> StatusCode {
    match error {
        Error::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
        Error::Connect(ConnectError::Forbidden(_)) => StatusCode::FORBIDDEN,
        Error::Url { .. } | Error::RequestBody(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::BAD_GATEWAY,
    }
}

/// Removes the fields that are true of the original bytes only, from a response with other ones: validators, digests, lengths.
pub fn unmark(headers: &mut HeaderMap) {
    for name in [ETAG, LAST_MODIFIED, ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_ENCODING] {
        headers.remove(name);
    }
    for name in ["content-md5", "digest", "content-digest", "repr-digest"] {
        headers.remove(name);
    }
}

/// The `ETag` of something that a proxy made of a response with this tag, for one kind of clients.
/// The second is whether a `GET` with these fields asks for nothing else than what it has, to be answered with `304`.
#[must_use]
pub fn variant_etag(tag: &str, kind: &str, request: &HeaderMap) -> (HeaderValue, bool) {
    let mut hasher = DefaultHasher::new();
    (tag, kind).hash(&mut hasher);
    let etag = format!("{VARIANT_START}{:016x}\"", hasher.finish());
    let conditions = request.iter().filter(|(name, _)| name.as_str().starts_with("if-"));
    let conditions: Vec<Field<'_>> =
        conditions.map(|(name, value)| Field { name: name.as_str(), value: value.as_bytes() }).collect();
    let current = conditional::Validators { etag: Some(etag.as_bytes()), modified_s: None };
    let verdict = conditional::evaluate(&Method::GET, Fields::new(&conditions), &current);
    (HeaderValue::try_from(&etag).expect("letters of ASCII are a value"), verdict == conditional::Verdict::NotModified)
}

/// Removes the conditions of a request, and its `Range`, if they are about a [`variant_etag`]: the server knows nothing of it.
///
/// ```
/// use dapple_client::HeaderMap;
/// use dapple_client::relay::{take_variant_conditions, variant_etag};
///
/// let mut request = HeaderMap::new();
/// request.insert("if-none-match", "\"1\"".parse()?);
/// take_variant_conditions(&mut request);
/// assert_eq!(request.len(), 1);
/// let (etag, has_it) = variant_etag("\"1\"", "phones", &request);
/// assert!(!has_it);
/// request.insert("if-none-match", etag);
/// assert!(variant_etag("\"1\"", "phones", &request).1);
/// take_variant_conditions(&mut request);
/// assert_eq!(request.len(), 0);
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn take_variant_conditions(request: &mut HeaderMap) {
    let mut tags = [IF_NONE_MATCH, IF_RANGE].into_iter().flat_map(|name| request.get_all(name));
    if tags.any(|value| value.to_str().is_ok_and(|value| value.contains(VARIANT_START))) {
        for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_RANGE, RANGE] {
            request.remove(name);
        }
    }
}

const VARIANT_START: &str = "W/\"variant-";

/// The head of a response with status 200 to `GET`, for a cache in a table: serde can write it (feature `json`).
///
/// It is kept only if it is for all clients alike, which is stricter than RFC 9111. The cache is for requests without `Authorization`.
///
/// ```
/// use dapple_client::HeaderMap;
/// use dapple_client::relay::{Kept, Reception, Verdict};
///
/// let (request, mut response) = (HeaderMap::new(), HeaderMap::new());
/// response.insert("etag", "\"1\"".parse()?);
/// response.insert("cache-control", "max-age=1".parse()?);
/// let at = |received_ms| Reception { requested_ms: received_ms, received_ms };
/// let kept = Kept::of(&request, &response, at(1_000), &[]).expect("it is the same for all");
/// assert_eq!(kept.verdict(&request, 1_500), Verdict::Fresh);
/// assert_eq!(kept.verdict(&request, 9_000), Verdict::Validate);
/// let mut outgoing = request.clone();
/// kept.ask(&mut outgoing);
/// assert_eq!(outgoing["if-none-match"], "\"1\"");
/// let renewed = kept.renewed(&response, at(9_100)).expect("a 304 with the same tag is about it");
/// assert_eq!(renewed.verdict(&request, 9_500), Verdict::Fresh);
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
pub struct Kept {
    fields: Vec<(String, Vec<u8>)>,
    requested_ms: u64,
    received_ms: u64,
}

impl Kept {
    /// The head of a response; `None` if it may not be kept, or may be another one for other clients: after a request with
    /// `Authorization`, with `Set-Cookie`, with a `Vary` that names more than `in_key`, or to a request with cookies if it says
    /// nothing of its freshness. Call [`strip`] first.
    #[must_use]
    pub fn of(request: &HeaderMap, response: &HeaderMap, reception: Reception, in_key: &[HeaderName]) -> Option<Kept> {
        let policy = policy(request, StatusCode::OK, response, reception)?;
        let mut varies = response.get_all(VARY).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let is_known = |name: &[u8]| {
            name.is_empty() || in_key.iter().any(|key| name.eq_ignore_ascii_case(key.as_str().as_bytes()))
        };
        let is_private = request.contains_key(AUTHORIZATION)
            || response.contains_key(SET_COOKIE)
            || (policy.is_guess() && request.contains_key(COOKIE))
            || !varies.all(|name| is_known(name.trim_ascii()));
        (!is_private).then(|| Kept::new(response, reception))
    }

    fn new(response: &HeaderMap, reception: Reception) -> Kept {
        let fields =
            response.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect();
        let Reception { requested_ms, received_ms } = reception;
        Kept { fields, requested_ms, received_ms }
    }

    /// The fields of the response.
    #[must_use]
    pub fn headers(&self) -> HeaderMap {
        let pair = |(name, value): &(String, Vec<u8>)| {
            HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value).ok())
        };
        self.fields.iter().filter_map(pair).collect()
    }

    fn policy(&self) -> Option<Policy> {
        let reception = Reception { requested_ms: self.requested_ms, received_ms: self.received_ms };
        policy(&HeaderMap::new(), StatusCode::OK, &self.headers(), reception)
    }

    /// The permitted use of the response for a request.
    #[must_use]
    pub fn verdict(&self, request: &HeaderMap, now_ms: u64) -> Verdict {
        // An origin that says nothing of freshness may mean the response for those with the same cookies.
        let policy = self.policy().filter(|policy| !policy.is_guess() || !request.contains_key(COOKIE));
        policy.map_or(Verdict::Validate, |policy| policy.verdict(&asked(request), now_ms))
    }

    /// Whether the response may replace an error of the origin (RFC 5861, section 4).
    #[must_use]
    pub fn may_replace_error(&self, request: &HeaderMap, now_ms: u64) -> bool {
        self.policy().is_some_and(|policy| policy.may_replace_error(&asked(request), now_ms))
    }

    /// The age of the response in seconds, the value of `Age`.
    #[must_use]
    pub fn age_s(&self, now_ms: u64) -> u64 {
        self.policy().map_or(0, |policy| policy.age_s(now_ms))
    }

    /// A name of the response among others of its URL: its `ETag`, or else the time of its arrival.
    #[must_use]
    pub fn tag(&self) -> String {
        let tag = self.fields.iter().find(|(name, _)| name == ETAG.as_str());
        tag.map_or_else(|| format!("at {}", self.received_ms), |(_, tag)| String::from_utf8_lossy(tag).into_owned())
    }

    /// Makes a request ask whether this response is still good, in the place of the conditions that it has.
    pub fn ask(&self, request: &mut HeaderMap) {
        let headers = self.headers();
        for (name, condition) in [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)] {
            request.remove(&condition);
            request.extend(headers.get(name).map(|value| (condition, value.clone())));
        }
    }

    /// The same response after a 304 with these fields; `None` if that is about another one. Call [`strip`] first. Its
    /// [`tag`](Self::tag) is another one if it has no `ETag`.
    #[must_use]
    pub fn renewed(&self, not_modified: &HeaderMap, reception: Reception) -> Option<Kept> {
        let headers = self.headers();
        is_about(&headers, not_modified).then(|| Kept::new(&merged(&headers, not_modified), reception))
    }
}

/// The fields of a request that decide about a cache.
fn fields(request: &HeaderMap) -> Vec<Field<'_>> {
    let deciding = request.iter().filter(|(name, _)| [AUTHORIZATION, CACHE_CONTROL, PRAGMA].contains(name));
    deciding.map(|(name, value)| Field { name: name.as_str(), value: value.as_bytes() }).collect()
}

/// Treats IPv4 inside IPv6 as IPv4: mapped, translated (NAT64) and 6to4 addresses.
#[must_use]
pub fn unwrapped(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = ip else { return ip };
    let words = v6.segments();
    let from = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match words {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => from(high, low),
        [0x2002, high, low, ..] => from(high, low),
        _ => ip,
    }
}

fn kind_of_v4(ip: Ipv4Addr) -> Option<AddressKind> {
    Some(match ip.octets() {
        [127, ..] => AddressKind::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => AddressKind::Private,
        [169, 254, ..] | [168, 63, 129, 16] => AddressKind::LinkLocal,
        // "This network" reaches the machine itself on many systems.
        [0, ..] => AddressKind::Special,
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18..=19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => {
            AddressKind::Special
        }
        [224..=255, ..] => AddressKind::Special,
        _ => return None,
    })
}

fn kind_of_v6(ip: Ipv6Addr) -> Option<AddressKind> {
    if ip.is_loopback() {
        return Some(AddressKind::Loopback);
    }
    Some(match ip.segments() {
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] => AddressKind::LinkLocal,
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] | [0x64, 0xff9b, 1, ..] => AddressKind::Private,
        [0xfe80..=0xfebf, ..] => AddressKind::LinkLocal,
        // Hosts have only addresses of 2000::/3, which includes Teredo and the documentation
        // ranges.
        [0x2001, 0, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => AddressKind::Special,
        [0x2000..=0x3fff, ..] => return None,
        _ => AddressKind::Special,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn responses_for_one_client_are_not_kept() {
        let kept = |request: &[_], response: &[_]| {
            let reception = Reception { requested_ms: 1, received_ms: 2 };
            Kept::of(&headers(request), &headers(response), reception, &[http::header::ACCEPT_ENCODING]).is_some()
        };
        let fresh = ("cache-control", "max-age=60");
        assert!(kept(&[], &[fresh]) && kept(&[("cookie", "a")], &[fresh]) && kept(&[], &[("etag", "\"1\"")]));
        assert!(kept(&[], &[fresh, ("vary", "Accept-Encoding")]));
        for response in [
            &[("cache-control", "no-store")][..],
            &[("cache-control", "private, max-age=60")],
            &[fresh, ("set-cookie", "a=b")],
            &[("cache-control", "public, max-age=60"), ("set-cookie", "a=b")],
            &[fresh, ("vary", "accept-encoding, cookie")],
            &[fresh, ("vary", "*")],
            &[],
        ] {
            assert!(!kept(&[], response), "{response:?}");
        }
        assert!(!kept(&[("authorization", "x")], &[("cache-control", "public, max-age=60")]));
        assert!(!kept(&[("cache-control", "no-store")], &[fresh]));
        assert!(!kept(&[("cookie", "a")], &[("etag", "\"1\"")]));
    }

    #[test]
    fn cookies_count_where_nothing_is_said_of_freshness() {
        let response =
            headers(&[("last-modified", "Thu, 01 Jan 1970 00:00:00 GMT"), ("date", "Fri, 02 Jan 1970 00:00:00 GMT")]);
        let at = 24 * 3_600 * 1_000;
        let reception = Reception { requested_ms: at, received_ms: at };
        let kept = Kept::of(&HeaderMap::new(), &response, reception, &[]).unwrap();
        assert_eq!(kept.verdict(&HeaderMap::new(), at + 1_000), Verdict::Fresh);
        assert_eq!(kept.verdict(&headers(&[("cookie", "a")]), at + 1_000), Verdict::Validate);
    }

    #[test]
    fn loops_are_noticed() {
        let (one, other) = (Via("dapple-1".to_owned()), Via("dapple-12".to_owned()));
        let mut message = headers(&[("via", "1.0 fred, 1.1 p (x)")]);
        other.add_to(&mut message, Version::HTTP_2);
        let values = || message.get_all(VIA).iter().map(HeaderValue::as_bytes);
        assert_eq!(values().next_back(), Some(&b"2 dapple-12"[..]));
        assert!(other.is_in(values()) && !one.is_in(values()));
        assert!(other.is_in([&b"1.0 fred, 1.1 dapple-12 (x)"[..]]));
        assert_ne!(Via::random("dapple"), Via::random("dapple"));
    }
}
