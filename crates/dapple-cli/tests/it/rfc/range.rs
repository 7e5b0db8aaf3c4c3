//! RFC 9110, section 14, and `If-Range` of section 13.

use super::site::TEXT;
use super::table::{Outcome, Requirement, get, must, reply, request, rule, should};

const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn ask(range: &str) -> Vec<u8> {
    get("/text.txt", &format!("Range: {range}\r\n"))
}

fn with(lines: &str) -> Vec<u8> {
    get("/text.txt", &format!("Range: bytes=0-3\r\n{lines}"))
}

fn whole() -> Outcome {
    reply(200).body(TEXT).lacks("content-range").into()
}

fn part() -> Outcome {
    reply(206).is("content-range", "bytes 0-3/36").body("0123").into()
}

fn outside() -> Outcome {
    reply(416).is("content-range", "bytes */36").into()
}

pub(super) fn requirements() -> Vec<Requirement> {
    let mut all = ranges();
    all.extend(when());
    all.extend(if_range());
    all
}

fn ranges() -> Vec<Requirement> {
    vec![
        rule(
            "14.1.2",
            "positions count from 0 and are inclusive; the last may be missing, or the first to mean that many last \
            bytes",
        )
        .case("range", ask("bytes=0-3"), part())
        .case(
            "range-in-the-middle",
            ask("bytes=10-12"),
            reply(206).is("content-range", "bytes 10-12/36").is("content-length", "3").body("abc"),
        )
        .case("range-of-one", ask("bytes=35-35"), reply(206).is("content-range", "bytes 35-35/36").body("z"))
        .case("range-to-the-end", ask("bytes=30-"), reply(206).is("content-range", "bytes 30-35/36").body("uvwxyz"))
        .case("range-of-the-last", ask("bytes=-2"), reply(206).is("content-range", "bytes 34-35/36").body("yz"))
        .case("range-of-all", ask("bytes=0-"), reply(206).is("content-range", "bytes 0-35/36").body(TEXT))
        .case(
            "range-beyond-the-end",
            ask("bytes=30-99"),
            reply(206).is("content-range", "bytes 30-35/36").body("uvwxyz"),
        )
        .case("range-of-more-than-all", ask("bytes=-99"), reply(206).is("content-range", "bytes 0-35/36").body(TEXT))
        .case(
            "range-of-a-big-file",
            get("/big.bin", "Range: bytes=1048575-\r\n"),
            reply(206).is("content-range", "bytes 1048575-1048575/1048576").is("content-length", "1"),
        )
        .case("range-in-upper-case", ask("BYTES=0-3"), part())
        .case("range-with-zeros", ask("bytes=00-003"), part()),
        must("14.1.2", "positions are large numbers: none overflows")
            .case("range-to-2-64", ask("bytes=0-18446744073709551616"), reply(206).body(TEXT))
            .case("range-to-2-64-less-1", ask("bytes=0-18446744073709551615"), reply(206).body(TEXT))
            .case("range-from-2-64", ask("bytes=18446744073709551616-"), outside())
            .case("range-from-2-64-and-3", ask("bytes=18446744073709551619-18446744073709551620"), outside())
            .case("range-of-the-last-2-64", ask("bytes=-18446744073709551617"), reply(206).body(TEXT)),
        should("14.2", "if no byte of the range exists, a 416 states the length")
            .case("range-behind-the-end", ask("bytes=36-"), outside())
            .case("ranges-behind-the-end", ask("bytes=36-40,50-"), outside())
            .case("range-of-no-last", ask("bytes=-0"), outside())
            .case(
                "range-of-nothing",
                get("/empty.txt", "Range: bytes=0-\r\n"),
                reply(416).is("content-range", "bytes */0"),
            ),
        rule("14.2", "an invalid value is ignored").each(
            "invalid-range",
            [
                "bytes",
                "bytes=",
                "bytes=-",
                "bytes=a-b",
                "bytes=3-2",
                "bytes=0",
                "bytes=0-3-5",
                "bytes=0-3;5",
                "bytes=+0-3",
                "bytes=0x0-3",
                "bytes=0- 3",
                "bytes=0 -3",
                "bytes 0-3",
                "=0-3",
                "bytes=0-3,x",
                "bytes=5-3,0-1",
                "0-3",
                "",
            ]
            .map(ask),
            whole,
        ),
        must("14.2", "an unknown unit is ignored").each(
            "unknown-unit",
            ["items=0-3", "byte=0-3", "bytess=0-3", "seconds=1-2", "none=0-0"].map(ask),
            whole,
        ),
    ]
}

fn when() -> Vec<Requirement> {
    vec![
        must("14.2", "`Range` is ignored for other methods than `GET`")
            .case(
                "range-for-head",
                request("HEAD", "/text.txt", "Range: bytes=0-3\r\n"),
                reply(200).head().is("content-length", "36").lacks("content-range"),
            )
            .case(
                "range-for-options",
                request("OPTIONS", "/text.txt", "Range: bytes=0-3\r\n"),
                reply(204).lacks("content-range"),
            )
            .case(
                "range-for-post",
                request("POST", "/text.txt", "Range: bytes=0-3\r\n"),
                reply(405).lacks("content-range"),
            ),
        rule("14.2", "`Range` counts only if the reply without it is 200")
            .case("range-of-404", get("/missing", "Range: bytes=0-3\r\n"), reply(404).lacks("content-range"))
            .case("range-of-301", get("/dir", "Range: bytes=0-3\r\n"), reply(301).lacks("content-range")),
        rule("14.2", "`Range` is not a list: two fields have no meaning").case(
            "two-ranges-fields",
            ask("bytes=0-1\r\nRange: bytes=2-3"),
            whole(),
        ),
        rule("14.2", "many ranges, or overlapping ones, are an attack: the whole is sent, or they are joined")
            .case("too-many-ranges", ask(&format!("bytes={}", ["0-0"; 200].join(","))), whole())
            .case("ranges-that-overlap", ask("bytes=0-9,0-9,0-9,0-9,0-9"), whole())
            .case("ranges-that-touch", ask("bytes=0-1,2-3"), part()),
        rule("14.3", "`Accept-Ranges` says that ranges are supported")
            .case("accept-ranges", get("/text.txt", ""), reply(200).is("accept-ranges", "bytes"))
            .case(
                "accept-ranges-for-head",
                request("HEAD", "/text.txt", ""),
                reply(200).head().is("accept-ranges", "bytes"),
            ),
        rule("14.2", "ranges refer to the content as sent, with its coding").case(
            "range-of-a-coding",
            get("/packed.js", "Accept-Encoding: br\r\nRange: bytes=0-5\r\n"),
            reply(206).is("content-encoding", "br").is("content-range", "bytes 0-5/21").body("brotli"),
        ),
        must("14.4", "`Content-Range` in a request is ignored if the method does not define it").case(
            "content-range-of-get",
            get("/text.txt", "Content-Range: bytes 0-0/36\r\n"),
            whole(),
        ),
        should("14.5", "`PUT` with `Content-Range` is not carried out").case(
            "partial-put",
            request("PUT", "/text.txt", "Content-Range: bytes 0-0/36\r\nContent-Length: 0\r\n"),
            reply(405),
        ),
    ]
}

fn if_range() -> Vec<Requirement> {
    vec![
        must("13.1.5", "with an `If-Range` that does not hold, `Range` is ignored")
            .case("if-range", with("If-Range: {etag}\r\n"), part())
            .case("if-range-of-another", with("If-Range: \"x\"\r\n"), whole())
            .case("if-range-date", with(&format!("If-Range: {SAME}\r\n")), part())
            .case("if-range-later-date", with("If-Range: Sun, 06 Nov 1994 08:49:38 GMT\r\n"), whole())
            .case("if-range-earlier-date", with("If-Range: Sun, 06 Nov 1994 08:49:36 GMT\r\n"), whole())
            .case("if-range-nonsense", with("If-Range: x\r\n"), whole())
            .case("if-range-list", with("If-Range: {etag}, \"x\"\r\n"), whole())
            .case("if-range-star", with("If-Range: *\r\n"), whole())
            .case("if-range-empty", with("If-Range:\r\n"), whole())
            .case("if-range-twice", with("If-Range: {etag}\r\nIf-Range: {etag}\r\n"), whole())
            .case("if-range-and-a-range-outside", get("/text.txt", "Range: bytes=99-\r\nIf-Range: \"x\"\r\n"), whole()),
        must("13.1.5", "`If-Range` compares strongly: a weak tag never matches").case(
            "if-range-weak",
            with("If-Range: W/{etag}\r\n"),
            whole(),
        ),
        must("13.1.5", "`If-Range` without `Range` is ignored")
            .case("if-range-alone", get("/text.txt", "If-Range: \"x\"\r\n"), whole())
            .case("if-range-alone-that-holds", get("/text.txt", "If-Range: {etag}\r\n"), whole()),
        must("13.1.5", "`If-Range` is ignored for targets without ranges").case(
            "if-range-for-the-status-page",
            get("/-/status", "Range: bytes=0-0\r\nIf-Range: \"x\"\r\n"),
            reply(200).lacks("content-range"),
        ),
        must("13.1.5", "a date too recent to distinguish states does not match")
            .moot("shown in dapple-http: `if_range_holds`, which is given the time"),
    ]
}
