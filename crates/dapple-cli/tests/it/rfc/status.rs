//! RFC 9110, section 15: status codes.

use super::site::TEXT;
use super::table::{Requirement, get, must, must_not, reply, request, rule, should};

pub(super) fn requirements() -> Vec<Requirement> {
    let mut all = parts();
    all.extend(others());
    all
}

fn parts() -> Vec<Requirement> {
    let several = "Range: bytes=0-9,500-509\r\n";
    vec![
        must("15.3.7.1", "206 with one part has `Content-Range`, and its content is that part")
            .case(
                "one-part",
                get("/text.txt", "Range: bytes=1-2\r\n"),
                reply(206).is("content-range", "bytes 1-2/36").body("12"),
            )
            .case(
                "one-part-in-http-1-0",
                "GET /text.txt HTTP/1.0\r\nRange: bytes=1-2\r\n\r\n",
                reply(206).old().body("12").closed(),
            ),
        must("15.3.7", "206 has the fields that 200 would have had")
            .case(
                "fields-of-a-part",
                get("/text.txt", "Range: bytes=1-2\r\n"),
                reply(206)
                    .has("etag")
                    .is("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")
                    .contains("content-type", "text/plain")
                    .has("date"),
            )
            .case(
                "fields-of-a-part-with-a-coding",
                get("/packed.js", "Range: bytes=1-2\r\nAccept-Encoding: br\r\n"),
                reply(206).has("etag").contains("vary", "ccept-").is("content-encoding", "br"),
            )
            .case("fields-of-several-parts", get("/long.html", several), reply(206).has("etag").has("last-modified")),
        must_not(
            "15.3.7.2",
            "206 with several parts has no `Content-Range` in its head, and its type is `multipart/byteranges`",
        )
        .case(
            "several-parts",
            get("/long.html", several),
            reply(206).lacks("content-range").contains("content-type", "multipart/byteranges; boundary="),
        ),
        must("15.3.7.2", "each part has a `Content-Range` of its own")
            .moot("shown by `files.rs` and `ranges.rs` of these tests, which parse such content"),
        must_not("15.3.7.2", "a single requested part is not sent as `multipart/byteranges`")
            .case(
                "one-part-is-not-several",
                get("/long.html", "Range: bytes=0-9\r\n"),
                reply(206).contains("content-type", "text/html"),
            )
            .case(
                "one-part-of-several",
                get("/long.html", "Range: bytes=0-9,90000-\r\n"),
                reply(206).is("content-range", "bytes 0-9/4200").contains("content-type", "text/html"),
            ),
        should("15.5.17", "416 states the length of the content").case(
            "length-in-416",
            get("/text.txt", "Range: bytes=40-\r\n"),
            reply(416).is("content-range", "bytes */36"),
        ),
        rule("15.5.17", "416 has no fields that describe the content").case(
            "fields-of-416",
            get("/text.txt", "Range: bytes=40-\r\n"),
            reply(416).lacks("accept-encoding").lacks("content-encoding"),
        ),
    ]
}

fn others() -> Vec<Requirement> {
    vec![
        must_not("15.2", "no 1xx is sent to HTTP/1.0").moot("checked for every reply of every case"),
        must("15.2.2", "101 names the new protocol of the connection").moot("no protocol is switched to in HTTP/1.1"),
        rule("15.3.5", "204 ends with its head").case("nothing-behind-204", [request("OPTIONS", "/", ""), get("/text.txt", "")].concat(), reply(204).lacks("content-length").lacks("transfer-encoding").then(reply(200).body(TEXT))),
        must_not("15.3.6", "205 has no content").moot("never sent"),
        should("15.4.2", "301 says where to").case("moved", get("/dir", ""), reply(301).is("location", "/dir/").contains("content-type", "text/html")),
        must("15.4.5", "304 has those of `Cache-Control`, `Content-Location`, `Date`, `ETag`, `Expires` and `Vary` that 200 would have had")
            .case("fields-of-304", get("/text.txt", "If-None-Match: *\r\n"), reply(304).has("etag").has("date").empty())
            .case("fields-of-304-where-there-are-codings", get("/packed.js", "If-None-Match: *\r\n"), reply(304).has("etag").contains("vary", "ccept-"))
            .case("fields-of-304-by-date", get("/text.txt", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), reply(304).has("etag")),
        should("15.4.5", "304 does not repeat the description of the content").case("no-content-fields-in-304", get("/text.txt", "If-None-Match: *\r\n"), reply(304).lacks("content-type").lacks("content-encoding")),
        rule("15.4.5", "304 ends with its head").case("nothing-behind-304", [get("/text.txt", "If-None-Match: *\r\n"), get("/text.txt", "")].concat(), reply(304).then(reply(200).body(TEXT))),
        must("15.5.2", "401 has a challenge").moot("never sent"),
        must("15.5.6", "405 lists the allowed methods").moot("checked for every reply of every case"),
        must("15.5.8", "407 has a challenge").moot("never sent"),
        rule("15.5.13", "412 if a condition does not hold").case("condition-that-does-not-hold", get("/text.txt", "If-Match: \"x\"\r\n"), reply(412)),
        must_not("15.5.20", "421 is sent by a server that is not the right one for the request, and by no proxy").moot("see \
            7.4; there is no proxy here"),
        must("15.5.22", "426 names the required protocol").moot("never sent"),
        should("15.5", "replies to errors explain themselves, except to `HEAD`")
            .case("words-for-404", get("/missing", ""), reply(404).contains("content-type", "text/html"))
            .case("no-words-for-head", request("HEAD", "/missing", ""), reply(404).head().contains("content-type", "text/html")),
        rule("15.5.5", "404 reveals nothing about hidden files")
            .each("hidden", ["/.git/config", "/.env", "/%2egit", "/dir/.htaccess"].map(|path| get(path, "")), || reply(404).into()),
        rule("15.6.6", "505 ends the connection").case("unknown-version", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", super::table::refused(505)),
    ]
}
