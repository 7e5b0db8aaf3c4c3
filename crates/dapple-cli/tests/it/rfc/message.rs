//! RFC 9112, sections 2 and 3: messages, and the request line.

use super::table::{Outcome, Requirement, bad, fine, get, must, ok, refused, reply, request, rule, should};

pub(super) fn requirements() -> Vec<Requirement> {
    let mut all = parsing();
    all.extend(version());
    all.extend(request_line());
    all.extend(host());
    all.extend(targets());
    all
}

fn parsing() -> Vec<Requirement> {
    vec![
        must("2.2", "a message is read as bytes in a superset of US-ASCII, not as characters of some other encoding")
            .case("utf-8-is-bytes", b"GET / HTTP/1.1\r\nHost: a\r\nX: \xe5\x98\x8a\xe5\x98\x8d\r\n\r\n", ok())
            .case("latin-1-is-bytes", b"GET / HTTP/1.1\r\nHost: a\r\nX: \xff\xfe\x80\xe9\r\n\r\n", ok())
            .case("utf-8-is-no-line-end", b"GET / HTTP/1.1\r\nHost: a\r\nX: \xe5\x98\x8aHost: b\r\n\r\n", ok()),
        must("2.2", "a CR without an LF makes its element invalid, or counts as a space")
            .each(
                "bare-cr",
                [
                    "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n",
                    "GET / HTTP/1.1\rHost: a\r\n\r\n",
                    "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
                    "GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
                    "GET / HTTP/1.1\r\nHost: a\r\nX\r: y\r\n\r\n",
                    "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
                    "GET / HTTP/1.1\r\nHost: a\r\n\r\r\n\r\n",
                    "G\rET / HTTP/1.1\r\nHost: a\r\n\r\n",
                ],
                bad,
            ),
        rule("2.2", "a line may end at a bare LF; here that is refused, because others may read on")
            .each(
                "bare-lf",
                [
                    "GET / HTTP/1.1\nHost: a\r\n\r\n",
                    "GET / HTTP/1.1\r\nHost: a\n\r\n",
                    "GET / HTTP/1.1\r\nHost: a\r\n\n",
                    "GET / HTTP/1.1\nHost: a\n\n",
                    "GET / HTTP/1.1\r\nHost: a\r\nX: y\nContent-Length: 5\r\n\r\n",
                    "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
                ],
                bad,
            ),
        should("2.2", "an empty line before the request line is ignored")
            .case("one-empty-line", [&b"\r\n"[..], &get("/", "")].concat(), ok())
            .case("two-empty-lines", [&b"\r\n\r\n"[..], &get("/", "")].concat(), ok())
            .case("empty-line-behind-a-body", [&request("GET", "/", "Content-Length: 2\r\n"), &b"hi\r\n"[..]].concat(), ok())
            .case("empty-lines-without-end", "\r\n".repeat(50), bad()),
        must("2.2", "white space between the request line and the first field: the message is refused, or such lines are skipped")
            .each(
                "space-before-first-field",
                [
                    "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
                    "GET / HTTP/1.1\r\n\tHost: a\r\n\r\n",
                    "GET / HTTP/1.1\r\n \r\nHost: a\r\n\r\n",
                    "GET / HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n",
                ],
                bad,
            ),
        should("2.2", "input that is not HTTP is answered with 400, and the connection ends")
            .each(
                "no-http",
                [
                    &b"NONSENSE\r\n\r\n"[..],
                    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
                    b"\0\0\0\0\r\n\r\n",
                    b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
                    b"{\"jsonrpc\":\"2.0\"}\r\n\r\n",
                    b"*1\r\n$4\r\nPING\r\n\r\n",
                    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                    b": / HTTP/1.1\r\nHost: a\r\n\r\n",
                ],
                bad,
            ),
        rule("2.1", "an empty line ends the fields; later bytes belong to the body or the next request")
            .case("two-requests-at-once", [get("/", ""), get("/text.txt", "")].concat(), ok().then(text())),
    ]
}

fn text() -> Outcome {
    reply(200).body(super::site::TEXT).into()
}

fn version() -> Vec<Requirement> {
    vec![
        rule("2.3", "the version is `HTTP`, a slash, a digit, a point, a digit, in upper case").each(
            "malformed-version",
            [
                "http/1.1",
                "HTTP/1",
                "HTTP/1.1x",
                "HTTP/01.1",
                "HTTP/1.01",
                "HTTP/1,1",
                "HTP/1.1",
                "HTTP/1.",
                "HTTP/+1.1",
                "HTTP 1.1",
                "ICY/1.1",
            ]
            .map(|version| format!("GET / {version}\r\nHost: a\r\n\r\n")),
            bad,
        ),
        rule("2.3", "an unsupported major version is answered with 505").each(
            "other-version",
            ["HTTP/2.0", "HTTP/3.0", "HTTP/0.9", "HTTP/9.9"]
                .map(|version| format!("GET / {version}\r\nHost: a\r\n\r\n")),
            || refused(505),
        ),
        rule("2.3", "HTTP/1.0 is understood").case("old-version", "GET / HTTP/1.0\r\n\r\n", ok().old().closed()).case(
            "old-version-with-host",
            "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
            ok().old().closed(),
        ),
        rule("2.3", "HTTP/0.9, a line without a version, is refused").case("no-version", "GET /\r\n\r\n", bad()).case(
            "no-version-but-a-space",
            "GET / \r\n\r\n",
            bad(),
        ),
    ]
}

fn request_line() -> Vec<Requirement> {
    vec![
        should("3.2", "an invalid request line is refused rather than corrected").each(
            "odd-request-line",
            [
                "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
                "GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n",
                " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                "\tGET / HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET /\x0bHTTP/1.1\r\nHost: a\r\n\r\n",
                "GET /\x0cHTTP/1.1\r\nHost: a\r\n\r\n",
                "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET\r\nHost: a\r\n\r\n",
                "/ HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET / HTTP/1.1 HTTP/1.1\r\nHost: a\r\n\r\n",
            ],
            bad,
        ),
        rule("3.1", "the method is a token").each(
            "method-that-is-no-word",
            ["G ET", "GET,", "GET\x00", "(GET)", "G\u{e9}T", "GET\"", "[GET]", "G=T", "GET/"]
                .map(|method| format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")),
            bad,
        ),
        should("3", "a method longer than any known one is answered with 501").case(
            "method-too-long",
            request(&"A".repeat(200), "/", ""),
            refused(501),
        ),
        must("3", "a target longer than the limit is answered with 414")
            .case("target-too-long", get(&format!("/{}", "x".repeat(9_000)), ""), refused(414))
            .case("query-too-long", get(&format!("/?{}", "x".repeat(9_000)), ""), refused(414))
            .case("target-without-end", format!("GET /{}", "x".repeat(9_000)), refused(414)),
        should("3", "request lines of 8000 bytes are accepted")
            .case("target-of-8000-bytes", get(&format!("/?{}", "x".repeat(7_985)), ""), ok())
            .case("path-of-8000-bytes", get(&format!("/{}", "x".repeat(7_986)), ""), reply(404)),
        rule("3.2", "a target has no white space, control byte, fragment or byte beyond ASCII").each(
            "byte-not-for-targets",
            [
                &b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n"[..],
                b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
                b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n",
                b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
                b"GET /#top HTTP/1.1\r\nHost: a\r\n\r\n",
                b"GET /text.txt\t HTTP/1.1\r\nHost: a\r\n\r\n",
            ],
            bad,
        ),
    ]
}

fn host() -> Vec<Requirement> {
    let with = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    vec![
        must("3.2", "HTTP/1.1 without `Host` is answered with 400")
            .case("no-host", "GET / HTTP/1.1\r\n\r\n", bad())
            .case("no-host-but-like-it", "GET / HTTP/1.1\r\nHosts: a\r\nX-Host: a\r\n\r\n", bad())
            .case("no-host-in-absolute-form", "GET http://a/ HTTP/1.1\r\n\r\n", bad())
            .case("no-host-for-options", "OPTIONS * HTTP/1.1\r\n\r\n", bad()),
        must("3.2", "more than one `Host` is answered with 400")
            .each_line("two-hosts", ["Host: b", "Host: a", "host: a", "HOST:", "X: y\r\nhOsT: b"], bad)
            .case("two-hosts-in-http-1-0", "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", bad()),
        must("3.2", "a `Host` that is not a host with an optional port is answered with 400").each(
            "invalid-host",
            [
                "a b", "a/b", "http://a", "user@a", "a:b", "a:80:80", "a:-1", "a:99999", "[::1", "::1", "[::g]", "[a]",
                "a?b", "a#b", "a\\b", "<a>", "a\u{e9}", "%zz", "\"a\"", ":80", "[::1]x", "a%",
            ]
            .map(with),
            bad,
        ),
        rule("3.2", "hosts are names, addresses, or both with a port").each(
            "valid-host",
            [
                "a",
                "EXAMPLE.com",
                "example.com.",
                "127.0.0.1",
                "127.0.0.1:80",
                "[::1]",
                "[::1]:8080",
                "a:",
                "a:0",
                "a_b",
                "x--y.z",
                "%61",
                " a \t",
            ]
            .map(with),
            fine,
        ),
        must("3.2", "an empty `Host` is invalid if the target names no host itself")
            .case("empty-host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", bad())
            .case("blank-host", "GET / HTTP/1.1\r\nHost: \t \r\n\r\n", bad()),
    ]
}

fn targets() -> Vec<Requirement> {
    vec![
        must("3.2.2", "targets in absolute form are accepted")
            .case("absolute-form", "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", ok())
            .case("absolute-form-with-a-port", "GET http://a:80/text.txt?q HTTP/1.1\r\nHost: a:80\r\n\r\n", text())
            .case("absolute-form-without-a-path", "GET http://a HTTP/1.1\r\nHost: a\r\n\r\n", ok())
            .case("absolute-form-with-a-query-alone", "GET http://a?q HTTP/1.1\r\nHost: a\r\n\r\n", ok())
            .case("absolute-form-in-upper-case", "GET HTTP://A/ HTTP/1.1\r\nHost: a\r\n\r\n", ok())
            .case("absolute-form-in-http-1-0", "GET http://a/ HTTP/1.0\r\n\r\n", ok().old().closed()),
        must(
            "3.2.2",
            "with a target in absolute form the `Host` is ignored, provided that it is there once and well-formed",
        )
        .case("absolute-form-and-another-host", "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", ok())
        .case("absolute-form-and-an-empty-host", "GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n", ok())
        .case("absolute-form-and-two-hosts", "GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", bad())
        .case("absolute-form-and-a-malformed-host", "GET http://a/ HTTP/1.1\r\nHost: a b\r\n\r\n", bad()),
        rule("3.2.2", "other schemes are not addresses of this server").each(
            "other-scheme",
            ["ftp://a/", "file:///etc/passwd", "http:/a", "http:a", "javascript:alert(1)", "http//a"]
                .map(|target| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")),
            bad,
        ),
        rule("3.2.3", "the authority form is only for `CONNECT`").each(
            "authority-form",
            ["GET a:80", "OPTIONS a:80", "HEAD a", "GET a", "POST a:80"]
                .map(|line| format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n")),
            bad,
        ),
        rule("3.2.4", "the asterisk form is only for `OPTIONS`")
            .case("asterisk-form", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", reply(204).has("allow"))
            .case("asterisk-form-with-an-empty-host", "OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n", reply(204).has("allow"))
            .case("options-in-absolute-form-without-a-path", "OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n", reply(204))
            .each(
                "asterisk-form-elsewhere",
                ["GET *", "HEAD *", "POST *", "OPTIONS **", "OPTIONS *?q", "CONNECT *"]
                    .map(|line| format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n")),
                bad,
            ),
        rule("3.3", "a user, or a password, is not read as a part of the host")
            .case("user-in-the-target", "GET http://user@a/ HTTP/1.1\r\nHost: a\r\n\r\n", bad())
            .case("password-in-the-target", "GET http://user:pass@a/ HTTP/1.1\r\nHost: a\r\n\r\n", bad()),
        rule("3.3", "HTTP/1.0 may leave `Host` out, or empty: the server knows its own name")
            .case(
                "http-1-0-without-a-host",
                "GET /text.txt HTTP/1.0\r\n\r\n",
                reply(200).old().body(super::site::TEXT).closed(),
            )
            .case("http-1-0-with-a-malformed-host", "GET / HTTP/1.0\r\nHost: a b\r\n\r\n", bad()),
    ]
}
