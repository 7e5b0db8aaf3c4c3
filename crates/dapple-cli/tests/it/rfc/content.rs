//! RFC 9110, sections 8 and 12: representations, and the choice among them.

use super::site::{PACKED, PACKED_BR, PACKED_GZ, TEXT};
use super::table::{Requirement, get, must, must_not, reply, request, rule, should};

pub(super) fn requirements() -> Vec<Requirement> {
    let mut all = representations();
    all.extend(negotiation());
    all
}

fn representations() -> Vec<Requirement> {
    vec![
        should("8.3", "content states its type")
            .case("type-of-html", get("/", ""), reply(200).contains("content-type", "text/html"))
            .case("type-of-text", get("/text.txt", ""), reply(200).contains("content-type", "text/plain"))
            .case("type-of-a-script", get("/packed.js", ""), reply(200).contains("content-type", "javascript"))
            .case("type-of-bytes", get("/big.bin", ""), reply(200).is("content-type", "application/octet-stream")),
        must("8.4", "encoded content states its coding")
            .case(
                "coding-of-a-neighbor",
                get("/packed.js", "Accept-Encoding: br\r\n"),
                reply(200).is("content-encoding", "br").body(PACKED_BR),
            )
            .case(
                "coding-of-another-neighbor",
                get("/packed.js", "Accept-Encoding: gzip\r\n"),
                reply(200).is("content-encoding", "gzip").body(PACKED_GZ),
            )
            .case(
                "coding-made-on-the-fly",
                get("/long.html", "Accept-Encoding: gzip\r\n"),
                reply(200).is("content-encoding", "gzip"),
            )
            .case("no-coding", get("/packed.js", ""), reply(200).lacks("content-encoding").body(PACKED)),
        should("8.4", "`identity` is not named").case(
            "identity-is-not-named",
            get("/packed.js", "Accept-Encoding: identity\r\n"),
            reply(200).lacks("content-encoding").body(PACKED),
        ),
        must_not("8.6", "no length is sent with 1xx, 204, or together with `Transfer-Encoding`")
            .moot("checked for every reply of every case"),
        must_not("8.6", "the length in the reply to `HEAD` is that of the reply to `GET`")
            .case("length-for-head", request("HEAD", "/text.txt", ""), reply(200).head().is("content-length", "36"))
            .case(
                "length-for-head-of-nothing",
                request("HEAD", "/empty.txt", ""),
                reply(200).head().is("content-length", "0"),
            )
            .case(
                "length-for-head-of-a-big-file",
                request("HEAD", "/big.bin", ""),
                reply(200).head().is("content-length", "1048576"),
            ),
        must_not("8.6", "the length in a 304 is that of the 200, if it is sent").case(
            "length-in-304",
            get("/text.txt", "If-None-Match: *\r\n"),
            reply(304).lacks("content-length"),
        ),
        must_not("8.6", "no length is sent with 2xx to `CONNECT`").moot("no tunnel is opened"),
        must("8.6", "lengths of requests are large numbers: none overflows").moot("see RFC 9112, 6.2"),
        must("8.8.2.1", "a date of change in the future is replaced by the date of the reply").case(
            "change-in-the-future",
            get("/future.txt", ""),
            reply(200).has("last-modified").body("not yet"),
        ),
        must_not("8.8.2.1", "no date of change is later than the date of the reply")
            .moot("checked for every reply of every case"),
        must_not("8.8.2.1", "a server without a clock sends no date of change of its own")
            .moot("the machine has a clock"),
        must("8.7", "`Content-Location` in a request is not stored").moot(
            "nothing of a request is \
            stored",
        ),
        must_not("8.7", "`Content-Location` in a request does not change its target").case(
            "content-location",
            get("/text.txt", "Content-Location: /secret.txt\r\n"),
            reply(200).body(TEXT),
        ),
        must("8.3.3", "parts of a body are separated by CR LF only").moot(
            "shown by `ranges.rs` of these tests, which \
            parses such content",
        ),
        must("8.8.3", "an entity tag that is not a strong validator says so").moot(
            "all are strong: of size, time of change and coding; one of content that may still change is sent \
                once and never again (`conditions.rs`, `files.rs`)",
        ),
        should("8.8.2.1", "a file has a date of change").case(
            "date-of-change",
            get("/text.txt", ""),
            reply(200).is("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ),
        should("8.8.3.1", "content has an entity tag")
            .case("entity-tag", get("/text.txt", ""), reply(200).has("etag"))
            .case("entity-tag-for-head", request("HEAD", "/text.txt", ""), reply(200).head().has("etag")),
        rule("8.8.3.3", "encoded content has another strong entity tag than plain content").case(
            "tag-of-plain-for-br",
            get("/packed.js", "Accept-Encoding: br\r\nIf-None-Match: {etag}\r\n"),
            reply(200).body(PACKED_BR),
        ),
    ]
}

fn negotiation() -> Vec<Requirement> {
    let packed = |accepted: &str| get("/packed.js", &format!("Accept-Encoding: {accepted}\r\n"));
    let br = || reply(200).is("content-encoding", "br").body(PACKED_BR);
    let gzip = || reply(200).is("content-encoding", "gzip").body(PACKED_GZ);
    let plain = || reply(200).lacks("content-encoding").body(PACKED);
    vec![
        rule("12.5.3", "the weights in the request choose the coding")
            .case("both-codings", packed("gzip, br"), br())
            .case("one-coding-rather", packed("gzip;q=1, br;q=0.5"), gzip())
            .case("one-coding-rather-the-other-way", packed("gzip;q=0.2, br;q=0.5"), br())
            .case("coding-refused", packed("gzip, br;q=0"), gzip())
            .case("coding-refused-in-full", packed("gzip;q=0.001, br;q=0.000"), gzip())
            .case("all-codings", packed("*"), br())
            .case("all-but-one", packed("*, br;q=0"), gzip())
            .case("white-space-around-weights", packed("gzip ; q=0.1 ,\tbr\t;\tq=0.9"), br())
            .case("coding-in-upper-case", packed("BR"), br())
            .case("plain-rather", packed("identity, gzip;q=0.5"), plain())
            .case("unknown-coding", packed("compress, sdch"), plain())
            .case("no-coding-taken", packed(""), plain())
            .case("malformed-weight", packed("br;q=2"), plain()),
        rule("12.5.3", "without the field, nothing is compressed").case(
            "field-left-out",
            get("/packed.js", ""),
            plain(),
        ),
        rule("12.5.3", "if nothing is acceptable, not even `identity`, the reply is 406")
            .case("nothing-acceptable", get("/text.txt", "Accept-Encoding: identity;q=0\r\n"), reply(406))
            .case("nothing-acceptable-by-a-star", get("/text.txt", "Accept-Encoding: *;q=0\r\n"), reply(406)),
        should("12.5.5", "`Vary` names the field that decided, whichever variant was chosen")
            .case("vary-of-plain", get("/packed.js", ""), reply(200).contains("vary", "ccept-"))
            .case("vary-of-a-coding", packed("br"), reply(200).contains("vary", "ccept-"))
            .case(
                "vary-of-the-good-copy",
                get("/packed.js", "If-None-Match: *\r\n"),
                reply(304).contains("vary", "ccept-"),
            ),
        must_not("12.5.3", "a 415 for another reason than codings does not name any").moot("never sent"),
        rule("12.5.1", "`Accept`, `Accept-Language` and `Accept-Charset` are ignored: there is only one choice").case(
            "accept-another-type",
            get("/text.txt", "Accept: image/png\r\nAccept-Language: tlh\r\nAccept-Charset: x\r\n"),
            reply(200).body(TEXT),
        ),
    ]
}
