//! RFC 9112, sections 4 and 5: the status line, and the syntax of fields.

use super::table::{Requirement, bad, fine, get, must, must_not, ok, rule};

pub(super) fn requirements() -> Vec<Requirement> {
    vec![
        must("4", "a space follows the status code, even without a reason phrase")
            .moot("checked for every reply of every case"),
        must("5.1", "white space between a field's name and its colon is answered with 400")
            .each_line(
                "space-before-colon",
                [
                    "X : y",
                    "X\t: y",
                    "X  : y",
                    "Content-Length : 5",
                    "Transfer-Encoding : chunked",
                    "Host : b",
                    "X\u{b}: y",
                ],
                bad,
            )
            .case("space-before-the-colon-of-host", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", bad()),
        rule("5.1", "white space around a value is not part of it")
            .case("value-in-white-space", get("/", "If-None-Match:  \t *\t  \r\n"), super::table::reply(304).empty())
            .case(
                "value-without-white-space",
                "GET / HTTP/1.1\r\nHost:a\r\nIf-None-Match:*\r\n\r\n",
                super::table::reply(304).empty(),
            )
            .case("length-in-white-space", [&get("/", "Content-Length: \t2\t \r\n"), &b"hi"[..]].concat(), ok()),
        rule("5.1", "a value may be empty").each_line(
            "empty-value",
            ["X:", "X: ", "X:\t \t", "Accept:", "User-Agent:"],
            fine,
        ),
        rule("5", "every field line has a name, which is a token, and a colon")
            .each_line(
                "line-that-is-no-field",
                [
                    "bad header",
                    ": value",
                    "X",
                    "(x): y",
                    "x[0]: y",
                    "x,y: z",
                    "x@y: z",
                    "x/y: z",
                    "\"x\": y",
                    "x{}: y",
                    "x\\y: z",
                    "x=y",
                ],
                bad,
            )
            .case("name-beyond-ascii", b"GET / HTTP/1.1\r\nHost: a\r\n\xc3\xa9: y\r\n\r\n", bad())
            .case("name-with-nul", b"GET / HTTP/1.1\r\nHost: a\r\nx\0y: z\r\n\r\n", bad()),
        must("5.2", "a folded field is answered with 400, or the fold counts as a space").each_line(
            "fold",
            [
                "X: a\r\n b",
                "X: a\r\n\tb",
                "X:\r\n a",
                "X: a\r\n \r\n b",
                "Content-Length: 1\r\n 0",
                "Transfer-Encoding:\r\n chunked",
                "X: a\r\n Host: b",
            ],
            bad,
        ),
        must_not("5.2", "no field of a reply is folded").moot("checked for every reply of every case"),
        must_not("2.2", "no white space is between the status line and the first field")
            .moot("checked for every reply of every case"),
        must("10.1", "a fold within `message/http` counts as spaces").moot("no content of this type is read"),
        must_not("2.2", "a reply has CR or LF only as a line's end or in the body")
            .moot("checked for every reply of every case"),
        rule("11.1", "a client's text does not become a line of the reply")
            .case(
                "line-end-in-a-redirect",
                get("/dir?a=%0d%0aX-Evil:%20y", ""),
                super::table::reply(301).lacks("x-evil").is("location", "/dir/?a=%0d%0aX-Evil:%20y"),
            )
            .case(
                "line-end-in-a-path",
                get("/dir%0d%0aX-Evil:%20y", ""),
                super::table::reply(404).lacks("x-evil").lacks("location"),
            ),
    ]
}
