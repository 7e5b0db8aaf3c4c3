//! RFC 9112, section 6: the length of a body.

use super::table::{Requirement, bad, get, must, must_not, ok, refused, reply, request, rule, should};

pub(super) fn requirements() -> Vec<Requirement> {
    let mut all = coding();
    all.extend(length());
    all
}

/// A request with these lines and the body `hi` in one chunk.
fn chunked(lines: &str) -> Vec<u8> {
    [&get("/", lines), &b"2\r\nhi\r\n0\r\n\r\n"[..]].concat()
}

fn coding() -> Vec<Requirement> {
    vec![
        must("6.1", "the coding `chunked` is understood, in any case of letters")
            .case("chunked", chunked("Transfer-Encoding: chunked\r\n"), ok())
            .case("chunked-in-upper-case", chunked("TRANSFER-ENCODING: CHUNKED\r\n"), ok())
            .case("chunked-in-mixed-case", chunked("Transfer-Encoding:\tChunKed \r\n"), ok()),
        must(
            "6.1",
            "`Transfer-Encoding` with `Content-Length` ends the connection after the reply; here it is refused",
        )
        .case("both-lengths", chunked("Content-Length: 12\r\nTransfer-Encoding: chunked\r\n"), bad())
        .case("both-lengths-the-other-way", chunked("Transfer-Encoding: chunked\r\nContent-Length: 12\r\n"), bad())
        .case("both-lengths-of-nothing", chunked("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"), bad())
        .case("length-and-unknown-coding", chunked("Content-Length: 4\r\nTransfer-Encoding: gzip\r\n"), bad()),
        must("6.1", "`Transfer-Encoding` in HTTP/1.0 is faulty framing: the connection ends")
            .case("coding-in-http-1-0", "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", bad())
            .case(
                "coding-and-keep-alive-in-http-1-0",
                "GET / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                bad(),
            )
            .case(
                "both-lengths-in-http-1-0",
                "POST / HTTP/1.0\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                bad(),
            ),
        should("6.1", "an unknown coding is answered with 501")
            .case("unknown-coding-before-chunked", chunked("Transfer-Encoding: gzip, chunked\r\n"), refused(501))
            .case(
                "unknown-codings-before-chunked",
                chunked("Transfer-Encoding: br;q=1, gzip, chunked\r\n"),
                refused(501),
            ),
        must("6.3", "a request with a last coding other than `chunked` is answered with 400, and the connection ends")
            .each(
                "last-coding-is-another",
                [
                    "gzip",
                    "identity",
                    "chunked, identity",
                    "chunked, gzip",
                    "xchunked",
                    "chunkedx",
                    "x-chunked",
                    "",
                    " ",
                    ",",
                    "\"chunked\"",
                    "'chunked'",
                    "chunk",
                    "chunked chunked",
                    "chunked\u{b}",
                    "chunked\u{c}",
                    "chunked;",
                ]
                .map(|coding| chunked(&format!("Transfer-Encoding: {coding}\r\n"))),
                bad,
            ),
        must_not("6.1", "`chunked` is not applied twice")
            .case("chunked-twice", chunked("Transfer-Encoding: chunked, chunked\r\n"), bad())
            .case(
                "chunked-in-two-fields",
                chunked("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
                bad(),
            )
            .case("codings-in-two-fields", chunked("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), bad())
            .case(
                "identity-in-a-second-field",
                chunked("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
                bad(),
            ),
        should("7.1", "parameters of `chunked` are an error")
            .case("chunked-with-a-parameter", chunked("Transfer-Encoding: chunked;q=1\r\n"), bad())
            .case("chunked-with-a-version", chunked("Transfer-Encoding: chunked; foo=bar\r\n"), bad()),
        must_not("6.1", "no reply to HTTP/1.0 has `Transfer-Encoding`, nor has one with 1xx or 204")
            .moot("checked for every reply of every case"),
        must_not("6.1", "2xx to `CONNECT` has no `Transfer-Encoding`").moot("no tunnel is opened"),
        must("6.1", "a reply with another coding than `chunked` ends with that, or with the connection")
            .moot("no other coding is applied"),
        must_not("6.2", "no reply has both `Transfer-Encoding` and `Content-Length`")
            .moot("checked for every reply of every case"),
    ]
}

fn length() -> Vec<Requirement> {
    let with = |length: &str| [&get("/", &format!("Content-Length: {length}\r\n")), &b"hello"[..]].concat();
    vec![
        must("6.3", "an invalid `Content-Length` is answered with 400, and the connection ends").each(
            "invalid-length",
            [
                "abc", "-5", "+5", "5x", "0x5", "5 5", "5;", "", " ", "5.0", "1e1", "\"5\"", "5\u{b}", "\u{b}5",
                "\u{660}", "5_0", "٥", "0b1", "five", "5 ,", ",5", ",",
            ]
            .map(with),
            bad,
        ),
        must("6.3", "several lengths are refused; a list of equal ones could be read as one, and is refused too")
            .each("several-lengths", ["5, 6", "5,5", "5, 5", "0, 5", "5, , 5"].map(with), bad)
            .case("two-lengths", get("/", "Content-Length: 5\r\nContent-Length: 6\r\n"), bad())
            .case("two-equal-lengths", get("/", "Content-Length: 0\r\nContent-Length: 0\r\n"), bad())
            .case("two-lengths-in-http-1-0", "GET / HTTP/1.0\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n", bad()),
        rule("6.3", "a request without `Content-Length` and `Transfer-Encoding` has no body")
            .case(
                "no-length",
                [get("/", ""), get("/text.txt", "")].concat(),
                ok().then(reply(200).body(super::site::TEXT)),
            )
            .case("no-length-for-post", [request("POST", "/", ""), get("/", "")].concat(), reply(405).then(ok())),
        rule("6.3", "a body has its stated length, and the next request begins after it")
            .case(
                "body-with-a-length",
                [with("5"), get("/text.txt", "")].concat(),
                ok().then(reply(200).body(super::site::TEXT)),
            )
            .case(
                "body-that-looks-like-a-request",
                [get("/", "Content-Length: 38\r\n"), get("/secret.txt", "X: y\r\n")[..38].to_vec()].concat(),
                ok(),
            )
            .case("body-of-nothing", get("/", "Content-Length: 0\r\n"), ok())
            .case("length-with-leading-zeros", with("0005"), ok())
            .case(
                "body-of-a-refused-method",
                [request("POST", "/", "Content-Length: 5\r\n"), b"hello".to_vec(), get("/", "")].concat(),
                reply(405).then(ok()),
            ),
        rule("6.2", "lengths are large numbers: none overflows (RFC 9110, 8.6)")
            .case("length-of-2-64", with("18446744073709551616"), refused(413))
            .case("length-of-2-64-and-5", with("18446744073709551621"), refused(413))
            .case("length-of-200-digits", with(&"9".repeat(200)), refused(413))
            .case("length-of-2-32-and-5", with("4294967301"), ok().closed()),
        rule("6.3", "a request body that is not `chunked` never lasts until the connection ends").case(
            "coding-identity-alone",
            [&get("/", "Transfer-Encoding: identity\r\n"), &b"hello"[..]].concat(),
            bad(),
        ),
        rule("6.3", "replies state their length, or are chunked")
            .case(
                "reply-with-a-length",
                get("/text.txt", ""),
                reply(200).is("content-length", "36").lacks("transfer-encoding"),
            )
            .case("reply-of-nothing", get("/empty.txt", ""), reply(200).is("content-length", "0").empty()),
    ]
}
