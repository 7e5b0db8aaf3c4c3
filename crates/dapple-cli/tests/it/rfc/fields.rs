//! RFC 9110, section 5: fields.

use super::table::{
    End, Requirement, Step, bad, fine, get, must, must_not, ok, read, refused, reply, rule, send, should,
};

pub(super) fn requirements() -> Vec<Requirement> {
    let mut all = names_and_values();
    all.extend(lists());
    all.extend(dates());
    all
}

fn names_and_values() -> Vec<Requirement> {
    vec![
        rule("5.1", "names are the same in upper and lower case")
            .case("name-in-upper-case", "GET / HTTP/1.1\r\nHOST: a\r\nIF-NONE-MATCH: *\r\n\r\n", reply(304).empty())
            .case("name-in-lower-case", "GET / HTTP/1.1\r\nhost: a\r\nif-none-match: *\r\n\r\n", reply(304).empty()),
        should("5.1", "unknown fields are ignored").each_line(
            "unknown-field",
            ["X-Unknown: y", "!#$%&'*+-.^_`|~09az: y", "Content-Language: tlh", "DNT: 1", "a: b\r\na: c\r\na: d"],
            fine,
        ),
        must_not("5.3", "a request is not carried out before all of its fields have arrived").script(
            "no-answer-before-the-end",
            vec![send("GET /secret.txt HTTP/1.1\r\nHost: a\r\n"), Step::HalfClose, read(reply(400))],
            End::Closed,
        ),
        must_not("5.3", "no field that is not a list is sent twice").moot("checked for every reply of every case"),
        must("5.4", "fields that exceed the limits are answered with 4xx, and not ignored")
            .case("field-of-20-kib", get("/", &format!("X: {}\r\n", "y".repeat(20_000))), refused(431))
            .case("many-fields-of-1-kib", get("/", &format!("X: {}\r\n", "y".repeat(1_000)).repeat(20)), refused(431))
            .case("fields-of-200-lines", get("/", &"X: y\r\n".repeat(200)), refused(431))
            .case("name-of-20-kib", get("/", &format!("{}: y\r\n", "x".repeat(20_000))), refused(431))
            .case("fields-that-are-taken", get("/", &format!("X: {}\r\n", "y".repeat(150)).repeat(90)), ok()),
        must("5.5", "CR, LF and NUL in a value: the message is refused, or each counts as a space")
            .each_line("nul-in-a-value", ["X: \0", "X: a\0b", "Connection: close\0", "Accept: \0text/html"], bad)
            .each_line("cr-in-a-value", ["X: \r", "X: a\rb", "X: a\r", "Connection: \rclose"], bad),
        rule("5.5", "other control bytes in a value are invalid too; a tab is valid")
            .each_line(
                "control-byte-in-a-value",
                ["X: \u{1}", "X: a\u{b}b", "X: \u{1b}[31m", "X: \u{7f}", "X: \u{8}"],
                bad,
            )
            .case("tab-in-a-value", get("/", "X: a\tb\r\n"), ok()),
        must("5.5", "white space around a value is ignored")
            .case(
                "option-in-white-space",
                get("/", "Connection: \t close \t \r\n"),
                ok().is("connection", "close").closed(),
            )
            .case("tag-in-white-space", get("/text.txt", "If-None-Match:\t{etag} \r\n"), reply(304).empty()),
        should("5.5", "bytes beyond ASCII in a value have no meaning and do no harm").case(
            "byte-beyond-ascii",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: \x80\xff\r\nUser-Agent: \xe9\r\n\r\n",
            ok(),
        ),
        must("5.6.4", "in a quoted string, a backslash escapes the next byte")
            .case(
                "quoted-pair",
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0;a=\"\\\"\r\n\r\n\"\r\n\r\n",
                bad(),
            )
            .case(
                "quoted-quote",
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0;a=\"\\\";\"\r\n\r\n",
                ok(),
            ),
        must("5.6.3", "bad white space is skipped where the grammar names it").case(
            "bad-white-space",
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0 ; a = b\r\n\r\n",
            ok(),
        ),
        must_not("5.6.3", "no bad white space is sent")
            .moot("checked for every reply of every case: the grammar allows it in chunks and challenges, and there are neither extensions nor challenges"),
    ]
}

fn lists() -> Vec<Requirement> {
    vec![
        must("5.6.1.2", "some empty elements of a list are ignored")
            .case(
                "empty-elements-of-connection",
                get("/", "Connection: ,, close,\r\n"),
                ok().is("connection", "close").closed(),
            )
            .case(
                "empty-elements-of-tags",
                get("/text.txt", "If-None-Match: , \"x\",, {etag},\r\n"),
                reply(304).empty(),
            )
            .case("empty-elements-of-ranges", get("/text.txt", "Range: bytes=,0-1,,\r\n"), reply(206).body("01"))
            .case(
                "empty-elements-of-codings",
                get("/packed.js", "Accept-Encoding: ,,br ,\r\n"),
                reply(200).is("content-encoding", "br"),
            ),
        must_not("5.6.1.1", "no list in a reply has empty elements").moot("checked for every reply of every case"),
        rule("5.3", "several fields that are lists are one list")
            .case(
                "tags-in-two-fields",
                get("/text.txt", "If-None-Match: \"x\"\r\nIf-None-Match: {etag}\r\n"),
                reply(304).empty(),
            )
            .case(
                "codings-in-two-fields-are-one-list",
                get("/packed.js", "Accept-Encoding: gzip;q=0.1\r\nAccept-Encoding: br\r\n"),
                reply(200).is("content-encoding", "br"),
            )
            .case(
                "options-in-two-fields",
                get("/", "Connection: keep-alive\r\nConnection: close\r\n"),
                ok().is("connection", "close").closed(),
            ),
    ]
}

fn dates() -> Vec<Requirement> {
    let since = |date: &str| get("/text.txt", &format!("If-Modified-Since: {date}\r\n"));
    vec![
        must("5.6.7", "all three forms of dates are read")
            .case("date-of-today", since("Sun, 06 Nov 1994 08:49:37 GMT"), reply(304).empty())
            .case("date-of-rfc-850", since("Sunday, 06-Nov-94 08:49:37 GMT"), reply(304).empty())
            .case("date-of-asctime", since("Sun Nov  6 08:49:37 1994"), reply(304).empty())
            .case("earlier-date-of-today", since("Sun, 06 Nov 1994 08:49:36 GMT"), reply(200))
            .case("earlier-date-of-rfc-850", since("Sunday, 06-Nov-94 08:49:36 GMT"), reply(200))
            .case("earlier-date-of-asctime", since("Sun Nov  6 08:49:36 1994"), reply(200)),
        must("5.6.7", "a two-digit year that would be more than 50 years ahead lies in the past")
            .case("year-of-the-past", since("Saturday, 06-Nov-93 08:49:37 GMT"), reply(200))
            .case("year-ahead", since("Wednesday, 06-Nov-30 08:49:37 GMT"), reply(304).empty()),
        must("5.6.7", "dates are sent in the current form, without extra white space")
            .moot("checked for every reply of every case"),
        rule("5.6.7", "text that is not a date in one of the forms is not a date").each(
            "no-date",
            [
                "sun, 06 nov 1994 08:49:37 gmt",
                "Sun, 06 Nov 1994 08:49:37",
                "Sun, 06 Nov 1994 08:49:37 UTC",
                "Sun, 6 Nov 1994 08:49:37 GMT",
                "06 Nov 2090 08:49:37 GMT",
                "2090-11-06T08:49:37Z",
                "Sun, 06 Nov 2090 25:00:00 GMT",
                "Sun, 31 Feb 2090 08:49:37 GMT",
                "784111777",
                "tomorrow",
                "Sun, 06 Nov 2090 08:49:37 GMT, Sun, 06 Nov 2090 08:49:37 GMT",
            ]
            .map(since),
            || reply(200).body(super::site::TEXT).into(),
        ),
    ]
}
