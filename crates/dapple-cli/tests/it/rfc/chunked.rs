//! RFC 9112, section 7: bodies in chunks.

use super::table::{End, Requirement, Step, bad, fine, must, must_not, ok, read, reply, rule, send};

/// A request with this body.
fn body(chunks: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}").into_bytes()
}

pub(super) fn requirements() -> Vec<Requirement> {
    let mut all = vec![
        must("7.1", "bodies in chunks are decoded, and the next request begins after them")
            .each(
                "chunks",
                [
                    "0\r\n\r\n",
                    "5\r\nhello\r\n0\r\n\r\n",
                    "1\r\nh\r\n1\r\ni\r\n0\r\n\r\n",
                    "A\r\n0123456789\r\n0\r\n\r\n",
                    "a\r\n0123456789\r\n0\r\n\r\n",
                    "0a\r\n0123456789\r\n000\r\n\r\n",
                    "0000000000000005\r\nhello\r\n0\r\n\r\n",
                    "7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n",
                ]
                .map(body),
                fine,
            )
            .case("chunks-and-a-request", [body("2\r\nhi\r\n0\r\n\r\n"), body("0\r\n\r\n")].concat(), ok().then(ok()))
            .case(
                "chunk-that-looks-like-a-request",
                body("27\r\nGET /secret.txt HTTP/1.1\r\nHost: a\r\n\r\nab\r\n0\r\n\r\n"),
                ok(),
            )
            .script(
                "chunks-that-come-later",
                vec![send(body("")), send("2\r\n"), send("hi\r"), send("\n0\r\n"), send("\r\n"), read(ok())],
                End::Open,
            ),
        must("7.1", "sizes are large numbers: none overflows")
            .each(
                "size-too-large",
                ["10000000000000005", "fffffffffffffffff", "00000000000000005", "100000000000000000000000000000000000"]
                    .map(|size| body(&format!("{size}\r\nhello\r\n0\r\n\r\n"))),
                bad,
            )
            .script(
                "largest-size",
                vec![send(body("FFFFFFFFFFFFFFFF\r\nhello")), Step::HalfClose, read(reply(400))],
                End::Closed,
            ),
        rule("7.1", "a size consists of hexadecimal digits only").each(
            "malformed-size",
            [
                "0x5", "+5", "-5", "_5", "5_0", "5h", "", " 5", "\t5", "5 ", "5\t", "5,", "5.0", "\"5\"", "g", "\0",
                "5\u{b}", "\u{660}", "5\r", "0X5", "5 5", "O",
            ]
            .map(|size| body(&format!("{size}\r\nhello\r\n0\r\n\r\n"))),
            bad,
        ),
        rule("7.1", "lines and chunks end with CR LF").each(
            "malformed-chunk-end",
            [
                "5\nhello\r\n0\r\n\r\n",
                "5\r\nhello\n0\r\n\r\n",
                "5\r\nhello0\r\n\r\n",
                "5\r\nhelloxx0\r\n\r\n",
                "5\r\nhello\r\r\n0\r\n\r\n",
                "5\rhello\r\n0\r\n\r\n",
                "4\r\nhello\r\n0\r\n\r\n",
                "6\r\nhello\r\n0\r\n\r\n",
                "5\r\nhello\r\n0\n\r\n",
                "5\r\nhello\r\n0\r\n\n",
                "5\r\nhello\r\n0\n\n",
                "5\r\nhello\r\n0\r\n\rX",
                "5\r\n\r\nhello\r\n0\r\n\r\n",
            ]
            .map(body),
            bad,
        ),
    ];
    all.extend(extensions());
    all
}

fn extensions() -> Vec<Requirement> {
    vec![
        must("7.1.1", "unknown extensions are ignored").each(
            "extension",
            [
                "5;a=b",
                "5;a",
                "5;a=\"b\"",
                "5;a=\"b;c\"",
                "5 ;a=b",
                "5; a=b",
                "5 ; a = b",
                "5;a=b;c=d",
                "5\t;\ta",
                "5;a=\"\\\"\"",
                "5;a=\"b\\\\\"",
                "5;a=\"\"",
            ]
            .map(|line| body(&format!("{line}\r\nhello\r\n0;last\r\n\r\n"))),
            fine,
        ),
        rule(
            "7.1.1",
            "extensions are well-formed: an LF in one, which some recipients take for the end of the line, \
            is refused",
        )
        .each(
            "malformed-extension",
            [
                "5;\nx",
                "5;a\n",
                "5;a=\"b\nc\"",
                "5;a=b\rc",
                "5;;",
                "5;",
                "5;=",
                "5;a=",
                "5;a=\"b",
                "5;a b",
                "5;a=b c",
                "5;\0",
                "5;a=\0",
                "5;a=\"\0\"",
                "5; ",
                "5;a=b\u{b}",
                "5;a=b=c",
                "5;a=\"b\"c",
            ]
            .map(|line| body(&format!("{line}\r\nhello\r\n0\r\n\r\n"))),
            bad,
        ),
        rule("7.1.1", "the total length of a body's extensions is limited")
            .case("extension-too-long", body(&format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(9_000))), bad())
            .case("extensions-too-many", body(&"1;xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\nh\r\n".repeat(400)), bad()),
        rule("7.1.2", "trailers are read and discarded").each(
            "trailer",
            ["X: y", "X:", "X: y\r\nZ: \u{e9}", "Content-MD5: x", "x:\ty"]
                .map(|line| body(&format!("2\r\nhi\r\n0\r\n{line}\r\n\r\n"))),
            fine,
        ),
        must_not("7.1.2", "trailers are not taken for fields of the request")
            .case("trailer-that-is-a-condition", body("0\r\nIf-None-Match: *\r\n\r\n"), ok())
            .case("trailer-that-is-a-range", body("0\r\nRange: bytes=0-1\r\n\r\n"), ok())
            .case("trailer-that-ends-the-connection", body("0\r\nConnection: close\r\n\r\n"), ok())
            .case("trailer-with-another-host", body("0\r\nHost: b\r\n\r\n"), ok())
            .case(
                "trailer-with-a-length",
                body("0\r\nContent-Length: 100\r\nTransfer-Encoding: chunked\r\n\r\n"),
                ok(),
            ),
        must("7.1.2", "trailers that are kept are kept apart").moot("none is kept"),
        rule("7.1.2", "trailers are fields, and checked as strictly")
            .each(
                "malformed-trailer",
                ["X : y", " X: y", "X", "X: y\r\n z", "X: a\rb", "X: a\0b", ": y", "X: y\nZ: z", "X\0: y", "(x): y"]
                    .map(|line| body(&format!("2\r\nhi\r\n0\r\n{line}\r\n\r\n"))),
                bad,
            )
            .case(
                "trailers-too-long",
                body(&format!("0\r\n{}\r\n", "X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(400))),
                bad(),
            ),
        rule("8", "a body is complete with the chunk of zero bytes, and not before")
            .script(
                "chunks-without-an-end",
                vec![send(body("5\r\nhello\r\n")), Step::HalfClose, read(reply(400))],
                End::Closed,
            )
            .script("chunk-cut-short", vec![send(body("5\r\nhel")), Step::HalfClose, read(reply(400))], End::Closed)
            .script(
                "trailer-cut-short",
                vec![send(body("0\r\nX: y\r\n")), Step::HalfClose, read(reply(400))],
                End::Closed,
            )
            .script("end-cut-short", vec![send(body("0\r\n")), Step::HalfClose, read(reply(400))], End::Closed),
    ]
}
