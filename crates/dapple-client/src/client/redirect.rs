//! URLs, and the targets of redirects (RFC 9110, section 15.4; the Fetch standard's rules where
//! that leaves a choice).

use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_TYPE, COOKIE, HOST,
    LOCATION, PROXY_AUTHORIZATION, TRANSFER_ENCODING,
};
use http::{HeaderMap, Method, StatusCode, Uri};
use url::Url;

use super::Error;
use crate::{Origin, Scheme};

/// A URL of a server.
pub(super) fn parse(text: &str) -> Result<Url, Error> {
    let wrong = |why: &str| Error::Url { url: shown(text), why: why.to_owned() };
    let url =
        Url::parse(text).map_err(|error| wrong(&format!("{error}; write http://HOST/PATH or https://HOST/PATH")))?;
    check(&url).map_err(wrong)?;
    Ok(url)
}

/// A URL for people to read, without its user and password.
fn shown(text: &str) -> String {
    let start = text.find("//").map_or(0, |at| at + 2);
    let len = text[start..].find(['/', '?', '#']).unwrap_or(text.len() - start);
    match text[start..start + len].rfind('@') {
        Some(at) => format!("{}...{}", &text[..start], &text[start + at..]),
        None => text.to_owned(),
    }
}

/// Checks that a URL can be requested. The error says why not.
fn check(url: &Url) -> Result<(), &'static str> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err("its scheme is neither `http` nor `https`");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it has a user in it; send that in `Authorization`");
    }
    match url.port() {
        Some(0) => Err("there is no port 0"),
        _ => Ok(()),
    }
}

/// The server of a checked URL.
pub(super) fn origin(url: &Url, http2_prior_knowledge: bool) -> Origin {
    let scheme = match url.scheme() {
        "https" => Scheme::Https,
        _ if http2_prior_knowledge => Scheme::H2c,
        _ => Scheme::Http,
    };
    let port = url.port_or_known_default().unwrap_or(scheme.port());
    Origin { scheme, host: url.host_str().unwrap_or_default().to_owned(), port }
}

/// The form that hyper takes: for HTTP/2 with scheme and host.
pub(super) fn uri(url: &Url, is_h2: bool) -> Result<Uri, Error> {
    let text = if is_h2 {
        &url[..url::Position::AfterQuery]
    } else {
        &url[url::Position::BeforePath..url::Position::AfterQuery]
    };
    text.parse().map_err(|error| Error::Url { url: url.to_string(), why: format!("{error}") })
}

/// The request that follows a redirect.
pub(super) struct Next {
    pub(super) url: Url,
    pub(super) method: Method,
    pub(super) keeps_body: bool,
}

/// The next request after a redirect; `None` if the response is not a redirect.
pub(super) fn next(
    status: StatusCode,
    headers: &HeaderMap,
    from: &Url,
    method: &Method,
) -> Result<Option<Next>, Error> {
    let becomes_get = match status.as_u16() {
        301 | 302 => *method == Method::POST,
        303 => *method != Method::GET && *method != Method::HEAD,
        307 | 308 => false,
        _ => return Ok(None),
    };
    let Some(location) = headers.get(LOCATION) else { return Ok(None) };
    let to = String::from_utf8_lossy(location.as_bytes()).into_owned();
    let wrong = |why| Error::Redirect { from: from.to_string(), to: shown(&to), why };
    let mut url = from.join(&to).map_err(|_| wrong("its target is not a URL"))?;
    check(&url).map_err(wrong)?;
    if from.scheme() == "https" && url.scheme() == "http" {
        return Err(wrong("it leads to an unencrypted URL; request that URL itself if this is right"));
    }
    if url.fragment().is_none() {
        url.set_fragment(from.fragment());
    }
    let method = if becomes_get { Method::GET } else { method.clone() };
    Ok(Some(Next { url, method, keeps_body: !becomes_get }))
}

/// Removes the fields that must not go to the next server.
pub(super) fn strip(headers: &mut HeaderMap, from: &Url, next: &Next) {
    if from.origin() != next.url.origin() {
        for name in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, HOST] {
            headers.remove(name);
        }
    }
    if !next.keeps_body {
        for name in
            [CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_TYPE, TRANSFER_ENCODING]
        {
            headers.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method, StatusCode};

    use super::{Error, next, origin, parse, strip, uri};

    fn redirect(status: u16, method: Method, from: &str, to: &str) -> Result<Option<super::Next>, Error> {
        let headers: HeaderMap = [(http::header::LOCATION, HeaderValue::from_str(to).unwrap())].into_iter().collect();
        next(StatusCode::from_u16(status).unwrap(), &headers, &parse(from).unwrap(), &method)
    }

    #[test]
    fn methods_and_bodies_follow_the_status() {
        for (status, method, becomes, keeps_body) in [
            (301, Method::POST, Method::GET, false),
            (302, Method::POST, Method::GET, false),
            (301, Method::PUT, Method::PUT, true),
            (302, Method::HEAD, Method::HEAD, true),
            (303, Method::PUT, Method::GET, false),
            (303, Method::HEAD, Method::HEAD, true),
            (307, Method::POST, Method::POST, true),
            (308, Method::DELETE, Method::DELETE, true),
        ] {
            let next = redirect(status, method.clone(), "http://a.test/x/y?z", "../b?c").unwrap().unwrap();
            assert_eq!((next.method, next.keeps_body), (becomes, keeps_body), "{status} {method}");
            assert_eq!(next.url.as_str(), "http://a.test/b?c");
        }
        for status in [200, 300, 304] {
            assert!(redirect(status, Method::GET, "http://a.test/", "/b").unwrap().is_none());
        }
    }

    #[test]
    fn redirects_to_unencrypted_or_unusual_places_are_not_followed() {
        for to in ["http://a.test/", "ftp://a.test/", "https://me:pw@a.test/", "https://a.test:0/", "https://"] {
            assert!(matches!(redirect(302, Method::GET, "https://a.test/", to), Err(Error::Redirect { .. })), "{to}");
        }
        assert!(redirect(302, Method::GET, "http://a.test/", "https://b.test/").unwrap().is_some());
    }

    #[test]
    fn secrets_stay_with_their_server() {
        let all = ["authorization", "cookie", "proxy-authorization", "content-type", "x-other"];
        for (to, keeps) in
            [("/b", 5), ("//a.test:80/b", 5), ("//a.test:81/", 2), ("https://a.test/", 2), ("//b.test/", 2)]
        {
            let next = redirect(307, Method::POST, "http://a.test/", to).unwrap().unwrap();
            let mut headers: HeaderMap =
                all.into_iter().map(|name| (name.parse().unwrap(), HeaderValue::from_static("x"))).collect();
            strip(&mut headers, &parse("http://a.test/").unwrap(), &next);
            assert_eq!(headers.len(), keeps, "{to}: {headers:?}");
        }
    }

    #[test]
    fn urls_become_targets() {
        let url = parse("https://Bücher.test:444/a b?c=d#e").unwrap();
        assert_eq!(uri(&url, false).unwrap().to_string(), "/a%20b?c=d");
        assert_eq!(uri(&url, true).unwrap().to_string(), "https://xn--bcher-kva.test:444/a%20b?c=d");
        assert_eq!(origin(&url, false).to_string(), "https://xn--bcher-kva.test:444");
        assert_eq!(origin(&parse("http://[::1]/").unwrap(), true).to_string(), "h2c://[::1]:80");
        for text in ["a.test", "/a", "file:///a", "http://me@a.test/", "http://a.test:0/", "http://", "http://a b/"] {
            let said = parse(text).unwrap_err().to_string();
            assert!(said.contains(&super::shown(text)), "{said}");
        }
    }

    #[test]
    fn errors_show_no_password() {
        for text in ["http://a:secret@b.test/x", "http://a:secret@b.test:99999/", "ftp://secret@b.test", "//a:secret@b"]
        {
            let message = super::parse(text).unwrap_err().to_string();
            assert!(!message.contains("secret") && message.contains("b"), "{message}");
        }
        assert_eq!(super::shown("http://b.test/@x"), "http://b.test/@x");
        let error = redirect(302, Method::GET, "https://a.test/", "https://a:secret@b.test/").map(|_| ()).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn a_fragment_is_kept_unless_there_is_another() {
        for (to, expected) in [("/b", "https://a.test/b#one"), ("/b#two", "https://a.test/b#two")] {
            let next = redirect(302, Method::GET, "https://a.test/a#one", to).unwrap().unwrap();
            assert_eq!(next.url.as_str(), expected);
        }
    }
}
