//! Requests that two recipients could read differently (RFC 9112, section 11.2): each is refused,
//! and nothing after it is answered.

use super::table::{Requirement, bad, get, refused, request, rule};

pub(super) fn requirements() -> Vec<Requirement> {
    let mut all = lengths_and_codings();
    all.extend(hidden_fields());
    all.extend(bytes_and_sizes());
    all
}

/// The end of a chunked body for recipients that read chunks, and a request for those that do not.
const HIDDEN: &str = "0\r\n\r\nGET /secret.txt HTTP/1.1\r\nHost: a\r\n\r\n";

/// `POST` with these lines, and a hidden request in its body.
fn post(lines: &str) -> Vec<u8> {
    [&request("POST", "/", lines)[..], HIDDEN.as_bytes()].concat()
}

fn lengths_and_codings() -> Vec<Requirement> {
    let whole = HIDDEN.len();
    vec![
        rule("11.2", "a length and a coding: one recipient uses the one, the next the other (CL.TE, TE.CL)")
            .each(
                "both",
                [
                    format!("Content-Length: {whole}\r\nTransfer-Encoding: chunked\r\n"),
                    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n".to_owned(),
                    "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n".to_owned(),
                    "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n".to_owned(),
                    "content-length: 5\r\nX: y\r\ntransfer-encoding: chunked\r\n".to_owned(),
                    "Transfer-Encoding: chunked\r\nX: y\r\nContent-Length: 5\r\nContent-Length: 5\r\n".to_owned(),
                ]
                .map(|lines| post(&lines)),
                bad,
            ),
        rule("11.2", "codings that one recipient reads as `chunked` and the next does not (TE.TE)")
            .each(
                "coding-in-disguise",
                [
                    "xchunked", "chunked, identity", "identity, chunked, identity", "chunked, x", "x chunked", "\u{b}chunked", "chunked\u{b}", "\"chunked\"", "chunked\u{0}", "chunked;",
                    "chunk", ",chunked,x", "chunked\u{a0}", "\u{a0}chunked", "CHUNKED, CHUNKED", "chu\tnked", "(chunked)", "chunked=1", "tchunked", "chunkedy",
                ]
                .map(|coding| post(&format!("Transfer-Encoding: {coding}\r\n"))),
                bad,
            )
            .each(
                "coding-that-is-not-known",
                ["identity, chunked", "cow, chunked", "gzip,chunked", "deflate , chunked"].map(|coding| post(&format!("Transfer-Encoding: {coding}\r\n"))),
                || refused(501),
            )
            .each(
                "two-codings",
                [
                    "Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n",
                    "Transfer-Encoding: cow\r\nTransfer-Encoding: chunked\r\n",
                    "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
                    "Transfer-Encoding: chunked\r\ntransfer-encoding: chunked\r\n",
                    "Transfer-Encoding:\r\nTransfer-Encoding: chunked\r\n",
                ]
                .map(post),
                bad,
            )
            .each(
                "coding-of-nothing-around-a-comma",
                ["chunked,", ",chunked", ", chunked"].map(|coding| post(&format!("Transfer-Encoding: {coding}\r\n"))),
                bad,
            ),
        rule("11.2", "lengths that one recipient reads as another number (CL.CL)")
            .each(
                "lengths",
                [
                    "Content-Length: 5\r\nContent-Length: 0\r\n",
                    "Content-Length: 0\r\nContent-Length: 5\r\n",
                    "Content-Length: 5\r\ncontent-length: 5\r\n",
                    "Content-Length: 5, 0\r\n",
                    "Content-Length: 5,5\r\n",
                    "Content-Length: +5\r\n",
                    "Content-Length: -5\r\n",
                    "Content-Length: 0x5\r\n",
                    "Content-Length: 5 0\r\n",
                    "Content-Length: 5\u{b}\r\n",
                    "Content-Length: 5abc\r\n",
                    "Content-Length: \u{665}\r\n",
                    "Content-Length: 5;x\r\n",
                    "Content-Length: '5'\r\n",
                    "Content-Length: 1_0\r\n",
                    "Content-Length:\r\n",
                ]
                .map(post),
                bad,
            ),
        rule("11.2", "a coding in HTTP/1.0, which knows none")
            .case("coding-in-an-old-request", format!("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{HIDDEN}"), bad())
            .case(
                "coding-in-an-old-request-that-goes-on",
                format!("POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n{HIDDEN}"),
                bad(),
            ),
    ]
}

fn hidden_fields() -> Vec<Requirement> {
    vec![
        rule("11.2", "names that one recipient reads as those of lengths and codings, and the next does not").each(
            "name-in-disguise",
            [
                "Transfer-Encoding : chunked\r\n",
                "Transfer-Encoding\t: chunked\r\n",
                " Transfer-Encoding: chunked\r\n",
                "\tTransfer-Encoding: chunked\r\n",
                "X: y\r\n Transfer-Encoding: chunked\r\n",
                "Transfer-Encoding\u{b}: chunked\r\n",
                "\u{b}Transfer-Encoding: chunked\r\n",
                "Transfer-Encoding\0: chunked\r\n",
                "\0Transfer-Encoding: chunked\r\n",
                "Transfer Encoding: chunked\r\n",
                "Transfer-Encoding\r\n: chunked\r\n",
                "Transfer-Encoding:\r\n chunked\r\n",
                "Transfer-Encoding\r: chunked\r\n",
                "Transfer-Encoding:\n chunked\r\n",
                "Content-Length : 5\r\n",
                "Content-Length\r\n : 5\r\n",
                "Content-Length\u{a0}: 5\r\n",
                "X: y\rTransfer-Encoding: chunked\r\n",
                "X: y\nTransfer-Encoding: chunked\r\n",
                "X: y\0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                "X\nTransfer-Encoding: chunked\r\n",
                "\rTransfer-Encoding: chunked\r\n",
                "X: y\r\n\rTransfer-Encoding: chunked\r\n",
                "\"Transfer-Encoding\": chunked\r\n",
                "Transfer-Encoding chunked\r\n",
            ]
            .map(post),
            bad,
        ),
        rule("11.2", "the end of the fields is an empty line, and nothing similar").each(
            "end-in-disguise",
            [
                "GET / HTTP/1.1\r\nHost: a\r\n\nGET /secret.txt HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a\n\nGET /secret.txt HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a\r\n \r\nGET /secret.txt HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a\n\r\nGET /secret.txt HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a\r\n\r\rGET /secret.txt HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a\r\n\0\r\nGET /secret.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            ],
            bad,
        ),
        rule("11.2", "a request for two hosts").each(
            "two-hosts-in-disguise",
            [
                "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a\r\nHost : b\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a\r\n Host: b\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
                "GET http://a/ HTTP/1.1\r\nHost: b\r\nHost: c\r\n\r\n",
                "GET http://a@b/ HTTP/1.1\r\nHost: b\r\n\r\n",
                "GET http://a\\@b/ HTTP/1.1\r\nHost: b\r\n\r\n",
                "GET http:///a HTTP/1.1\r\nHost: b\r\n\r\n",
            ],
            bad,
        ),
    ]
}

fn bytes_and_sizes() -> Vec<Requirement> {
    let chunks = |body: &str| [&request("POST", "/", "Transfer-Encoding: chunked\r\n")[..], body.as_bytes()].concat();
    let smuggled = "GET /secret.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    vec![
        rule("11.2", "sizes of chunks that one recipient reads as another number")
            .each(
                "size-in-disguise",
                [
                    "0x0", "+0", "-0", "0_0", " 0", "0 ", "0\t", "\t0", "0\u{b}", "00000000000000000", "10000000000000000", "0,", "0;\n", "0\n", "0\r", "0\0", "\u{660}", "o", "", "0 0", "0;a=\"", "0;a=\"\n",
                ]
                .map(|size| chunks(&format!("{size}\r\n\r\n{smuggled}"))),
                bad,
            ),
        rule("11.2", "ends of chunks that one recipient does not see, or sees elsewhere")
            .each(
                "chunk-end-in-disguise",
                [
                    format!("2\r\nhi0\r\n\r\n{smuggled}"),
                    format!("2\r\nhi\n0\r\n\r\n{smuggled}"),
                    format!("2\nhi\r\n0\r\n\r\n{smuggled}"),
                    format!("2\r\nhi\r0\r\n\r\n{smuggled}"),
                    format!("2\r\nhixx0\r\n\r\n{smuggled}"),
                    format!("2;\nxx\r\n4c\r\n0\r\n\r\n{smuggled}"),
                    format!("0\r\n\n{smuggled}"),
                    format!("0\n\r\n{smuggled}"),
                    format!("0\r\nX: y\n\r\n{smuggled}"),
                    format!("0\r\n Content-Length: 5\r\n\r\n{smuggled}"),
                    format!("0\r\n\0\r\n{smuggled}"),
                ]
                .map(|body| chunks(&body)),
                bad,
            ),
        rule("11.2", "control bytes in the head")
            .each(
                "control-byte",
                (0..=0x1f_u8)
                    .chain([0x7f])
                    .filter(|byte| !b"\t\n\r".contains(byte))
                    .map(|byte| [&b"GET / HTTP/1.1\r\nHost: a\r\nX: a"[..], &[byte], b"b\r\n\r\n"].concat()),
                bad,
            )
            .each(
                "control-byte-in-the-target",
                (0..=0x20_u8)
                    .chain([0x7f, 0x80, 0xff])
                    .filter(|byte| !b"\n\r".contains(byte))
                    .map(|byte| [&b"GET /a"[..], &[byte], b"b HTTP/1.1\r\nHost: a\r\n\r\n"].concat()),
                bad,
            ),
        rule("11.2", "heads that never end, or are longer than any need")
            .case("one-field-too-long", get("/", &format!("X: {}\r\n", "x".repeat(40_000))), refused(431))
            .case("name-too-long", get("/", &format!("{}: y\r\n", "x".repeat(40_000))), refused(431))
            .case("fields-too-many", get("/", &"X: y\r\n".repeat(500)), refused(431))
            .case("line-without-end", format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(40_000)), refused(431)),
        rule("11.2", "a request to upgrade, or in the wrong protocol, does not bypass the checks")
            .case("upgrade-to-h2c-hides-nothing", get("/secret.txt/", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"), super::table::reply(404))
            .case("websocket-hides-nothing", get("/secret.txt/", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n"), super::table::reply(404))
            .case("connect-hides-nothing", [&b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"[..]].concat(), super::table::reply(405)),
    ]
}
