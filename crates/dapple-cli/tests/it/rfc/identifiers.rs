//! RFC 9110, sections 2 to 4: conformance, and addresses.

use super::table::{Requirement, bad, get, must, must_not, ok, reply, rule, should};

pub(super) fn requirements() -> Vec<Requirement> {
    vec![
        must_not("2.2", "the server sends nothing that breaks the grammar, or that only others may send")
            .moot("every reply of every case is read strictly"),
        must(
            "2.3",
            "the server's own text can be read back: an element of a request may be as long as the server \
            makes it",
        )
        .case(
            "own-tag-and-date",
            get("/text.txt", "If-None-Match: {etag}\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
            reply(304),
        ),
        must("2.4", "all fields are used as the documents define them").moot("all of these cases are about that"),
        should("6.2", "a minor version above the known ones counts as the highest known")
            .moot("not done: HTTP/1.2 and later do not exist, and a client that sends them gets a 505"),
        must_not("3.3", "requests on one connection are not assumed to come from one user").case(
            "users-of-one-connection",
            [get("/", "Authorization: Basic YTpi\r\n"), b"GET / HTTP/1.1\r\nHost: b\r\n\r\n".to_vec()].concat(),
            ok().then(ok()),
        ),
        should("4.1", "addresses of 8000 bytes are accepted").case(
            "address-of-8000-bytes",
            get(&format!("/?{}", "x".repeat(7_998)), ""),
            ok(),
        ),
        must("4.2.1", "an `http` address without a host is invalid").each(
            "http-without-a-host",
            ["http:///", "http://:80/", "http://?q", "http://@a/"].map(absolute),
            bad,
        ),
        must("4.2.2", "an `https` address without a host is invalid").each(
            "https-without-a-host",
            ["https:///", "https://:443/"].map(absolute),
            bad,
        ),
        must_not("4.2.4", "no reply has an address with a user or a password").case(
            "redirect-without-a-user",
            "GET /dir HTTP/1.1\r\nHost: a\r\n\r\n",
            reply(301).is("location", "/dir/"),
        ),
        should("4.2.4", "an address with a user is an error").each(
            "address-with-a-user",
            ["http://a@b/", "http://a:b@c/", "http://a%40b@c/"].map(absolute),
            bad,
        ),
        rule("4.2.3", "scheme and host are the same in upper and lower case, and an empty path is `/`").case(
            "scheme-and-host-in-upper-case",
            absolute("HTTP://EXAMPLE.COM"),
            ok(),
        ),
        rule("4.2.3", "needless escapes mean the characters themselves; a slash in a name does not")
            .case("escaped-letter", get("/%74ext.txt", ""), reply(200).body(super::site::TEXT))
            .case("escaped-letter-in-lower-case-digits", get("/te%78t.txt", ""), reply(200).body(super::site::TEXT))
            .case("escaped-space", get("/a%20b.txt", ""), reply(200).body("spaced"))
            .case("escaped-slash", get("/dir%2findex.html", ""), reply(400))
            .case("escaped-nul", get("/text.txt%00", ""), reply(400))
            .each("broken-escape", ["/%", "/%2", "/%zz", "/%-1"].map(|path| get(path, "")), || reply(400).into()),
        rule("17.3", "no path leads out of the site")
            .each(
                "path-that-climbs",
                [
                    "/../etc/passwd",
                    "/dir/../../etc/passwd",
                    "/%2e%2e/etc/passwd",
                    "/..%2fetc/passwd",
                    "/.%2e/etc/passwd",
                    "/dir/..%5c..%5cetc/..",
                ]
                .map(|path| get(path, "")),
                || reply(400).into(),
            )
            .each(
                "path-of-the-machine",
                ["//etc/passwd", "/./text.txt", "/dir//index.html", "/..\\etc\\passwd"].map(|path| get(path, "")),
                || reply(404).into(),
            ),
        must("7.4", "a request for an `https` address without TLS is refused").case(
            "https-without-tls",
            absolute("https://a/"),
            reply(421),
        ),
    ]
}

fn absolute(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}
