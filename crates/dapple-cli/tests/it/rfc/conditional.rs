//! RFC 9110, section 13: conditional requests.

use super::site::TEXT;
use super::table::{Outcome, Requirement, bad, get, must, must_not, ok, reply, request, rule, should};

const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

fn ask(lines: &str) -> Vec<u8> {
    get("/text.txt", lines)
}

fn whole() -> Outcome {
    reply(200).body(TEXT).into()
}

fn good() -> Outcome {
    reply(304).has("etag").empty().into()
}

fn failed() -> Outcome {
    reply(412).into()
}

pub(super) fn requirements() -> Vec<Requirement> {
    let mut all = tags();
    all.extend(dates());
    all.extend(precedence());
    all
}

fn tags() -> Vec<Requirement> {
    vec![
        must_not(
            "13.1.1",
            "`If-Match` is evaluated first, and if it does not hold the request is not carried out: 412",
        )
        .case("if-match", ask("If-Match: {etag}\r\n"), whole())
        .case("if-match-in-a-list", ask("If-Match: \"x\", {etag}\r\n"), whole())
        .case("if-match-in-two-fields", ask("If-Match: \"x\"\r\nIf-Match: {etag}\r\n"), whole())
        .case("if-match-of-another", ask("If-Match: \"x\"\r\n"), failed())
        .case("if-match-of-a-list-of-others", ask("If-Match: \"x\", \"y\"\r\n"), failed())
        .case("if-match-any", ask("If-Match: *\r\n"), whole())
        .case("if-match-for-head", request("HEAD", "/text.txt", "If-Match: \"x\"\r\n"), reply(412).head())
        .case("if-match-without-quotes", ask("If-Match: x\r\n"), failed())
        .case("if-match-of-nothing", ask("If-Match:\r\n"), failed()),
        must("13.1.1", "`If-Match` compares strongly: a weak tag never matches").case(
            "if-match-weak",
            ask("If-Match: W/{etag}\r\n"),
            failed(),
        ),
        must_not("13.1.2", "with an `If-None-Match` that does not hold, `GET` and `HEAD` are answered with 304")
            .case("if-none-match", ask("If-None-Match: {etag}\r\n"), good())
            .case("if-none-match-in-a-list", ask("If-None-Match: \"x\",{etag} , \"y\"\r\n"), good())
            .case("if-none-match-any", ask("If-None-Match: *\r\n"), good())
            .case("if-none-match-of-another", ask("If-None-Match: \"x\"\r\n"), whole())
            .case("if-none-match-with-a-comma-in-the-tag", ask("If-None-Match: \"x,{etag}\"\r\n"), whole())
            .case("if-none-match-of-nothing", ask("If-None-Match:\r\n"), whole())
            .case(
                "if-none-match-for-head",
                request("HEAD", "/text.txt", "If-None-Match: {etag}\r\n"),
                reply(304).head(),
            ),
        must("13.1.2", "`If-None-Match` compares weakly: `W/` makes no difference")
            .case("if-none-match-weak", ask("If-None-Match: W/{etag}\r\n"), good())
            .case("if-none-match-weak-in-lower-case", ask("If-None-Match: w/{etag}\r\n"), whole()),
        must_not("13.1.2", "with an `If-None-Match` that does not hold, other methods are answered with 412")
            .moot("other methods are answered with 405 and 501 before conditions count"),
    ]
}

fn dates() -> Vec<Requirement> {
    let since = |date: &str| ask(&format!("If-Modified-Since: {date}\r\n"));
    let until = |date: &str| ask(&format!("If-Unmodified-Since: {date}\r\n"));
    vec![
        should("13.1.3", "`If-Modified-Since`: a copy as new as the file is current")
            .case("if-modified-since", since(SAME), good())
            .case("if-modified-since-later", since(LATER), good())
            .case("if-modified-since-earlier", since(EARLIER), whole()),
        must("13.1.3", "`If-Modified-Since` is ignored with `If-None-Match`")
            .case(
                "if-modified-since-and-another-tag",
                ask(&format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {SAME}\r\n")),
                whole(),
            )
            .case(
                "if-modified-since-and-the-tag",
                ask(&format!("If-None-Match: {{etag}}\r\nIf-Modified-Since: {EARLIER}\r\n")),
                good(),
            ),
        must(
            "13.1.3",
            "`If-Modified-Since` is ignored unless it is a single date, and for methods other than `GET` \
            and `HEAD`",
        )
        .case("if-modified-since-no-date", since("yesterday"), whole())
        .case(
            "if-modified-since-twice",
            ask(&format!("If-Modified-Since: {SAME}\r\nIf-Modified-Since: {SAME}\r\n")),
            whole(),
        )
        .case("if-modified-since-list", since(&format!("{SAME}, {SAME}")), whole())
        .case("if-modified-since-number", since("784111777"), whole())
        .case(
            "if-modified-since-for-options",
            request("OPTIONS", "/text.txt", &format!("If-Modified-Since: {SAME}\r\n")),
            reply(204),
        ),
        must_not(
            "13.1.4",
            "`If-Unmodified-Since` is evaluated first, and if it does not hold the request is not carried out: 412",
        )
        .case("if-unmodified-since", until(SAME), whole())
        .case("if-unmodified-since-later", until(LATER), whole())
        .case("if-unmodified-since-earlier", until(EARLIER), failed())
        .case(
            "if-unmodified-since-for-head",
            request("HEAD", "/text.txt", &format!("If-Unmodified-Since: {EARLIER}\r\n")),
            reply(412).head(),
        ),
        must("13.1.4", "`If-Unmodified-Since` is ignored with `If-Match`")
            .case(
                "if-unmodified-since-and-the-tag",
                ask(&format!("If-Match: {{etag}}\r\nIf-Unmodified-Since: {EARLIER}\r\n")),
                whole(),
            )
            .case(
                "if-unmodified-since-and-another-tag",
                ask(&format!("If-Match: \"x\"\r\nIf-Unmodified-Since: {SAME}\r\n")),
                failed(),
            ),
        must("13.1.4", "`If-Unmodified-Since` is ignored unless it is a single date")
            .case("if-unmodified-since-no-date", until("yesterday"), whole())
            .case(
                "if-unmodified-since-twice",
                ask(&format!("If-Unmodified-Since: {EARLIER}\r\nIf-Unmodified-Since: {EARLIER}\r\n")),
                whole(),
            ),
        must("13.1.3", "`If-Modified-Since` is ignored for a page without a date of change").case(
            "modified-since-for-the-status-page",
            get("/-/status", &format!("If-Modified-Since: {LATER}\r\n")),
            reply(200),
        ),
        must("13.1.4", "`If-Unmodified-Since` is ignored for a page without a date of change").case(
            "unmodified-since-for-the-status-page",
            get("/-/status", &format!("If-Unmodified-Since: {EARLIER}\r\n")),
            reply(200),
        ),
        must("13.1.3", "the date of `If-Modified-Since` is one of the server's clock")
            .moot("it is only compared with the date of change"),
        must("13.1.4", "the date of `If-Unmodified-Since` is one of the server's clock")
            .moot("it is only compared with the date of change"),
    ]
}

fn precedence() -> Vec<Requirement> {
    vec![
        must("13.2.1", "conditions are ignored if the reply without them is neither 2xx nor 412")
            .case("conditions-of-404", get("/missing", "If-None-Match: *\r\nIf-Match: \"x\"\r\n"), reply(404))
            .case("conditions-of-301", get("/dir", "If-Match: \"x\"\r\n"), reply(301))
            .case("conditions-of-405", request("DELETE", "/text.txt", "If-Match: \"x\"\r\n"), reply(405))
            .case("conditions-of-406", get("/text.txt", "Accept-Encoding: *;q=0\r\nIf-Match: \"x\"\r\n"), reply(406))
            .case("conditions-of-400", get("/%", "If-None-Match: *\r\n"), reply(400))
            .case("conditions-of-a-refused-head", b"GET / HTTP/1.1\r\nIf-None-Match: *\r\n\r\n", bad()),
        must("13.2.1", "conditions are ignored for `OPTIONS`, `CONNECT` and `TRACE`")
            .case("conditions-of-options", request("OPTIONS", "/text.txt", "If-Match: \"x\"\r\nIf-None-Match: *\r\n"), reply(204))
            .case("conditions-of-trace", request("TRACE", "/text.txt", "If-None-Match: *\r\n"), reply(405))
            .case("conditions-of-connect", "CONNECT a:80 HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n", reply(405)),
        must("13.2.2", "conditions are evaluated in order: tags to match, dates to match, tags not to match, dates \
            not to match, and then ranges")
            .case("first-match-then-none-match", ask("If-Match: {etag}\r\nIf-None-Match: {etag}\r\n"), good())
            .case("match-fails-before-none-match", ask("If-None-Match: {etag}\r\nIf-Match: \"x\"\r\n"), failed())
            .case("date-fails-before-none-match", ask(&format!("If-None-Match: {{etag}}\r\nIf-Unmodified-Since: {EARLIER}\r\n")), failed())
            .case("date-holds-before-none-match", ask(&format!("If-None-Match: {{etag}}\r\nIf-Unmodified-Since: {SAME}\r\n")), good())
            .case("date-holds-before-date", ask(&format!("If-Unmodified-Since: {SAME}\r\nIf-Modified-Since: {SAME}\r\n")), good())
            .case("match-holds-before-date", ask(&format!("If-Match: {{etag}}\r\nIf-Modified-Since: {SAME}\r\n")), good())
            .case("all-hold", ask(&format!("If-Match: {{etag}}\r\nIf-Unmodified-Since: {EARLIER}\r\nIf-None-Match: \"x\"\r\nIf-Modified-Since: {SAME}\r\n")), whole())
            .case("none-match-before-range", ask("If-None-Match: {etag}\r\nRange: bytes=0-0\r\n"), good())
            .case("match-before-range", ask("If-Match: \"x\"\r\nRange: bytes=0-0\r\n"), failed())
            .case("match-then-range", ask("If-Match: {etag}\r\nRange: bytes=0-0\r\n"), reply(206).body("0"))
            .case("none-match-then-range", ask("If-None-Match: \"x\"\r\nRange: bytes=0-0\r\n"), reply(206).body("0"))
            .case("none-match-before-a-range-outside", ask("If-None-Match: {etag}\r\nRange: bytes=99-\r\n"), good()),
        rule("3.3", "conditions of a request do not affect the next one")
            .case("conditions-are-forgotten", [ask("If-None-Match: *\r\n"), get("/", ""), ask("")].concat(), reply(304).then(ok().then(reply(200).body(TEXT)))),
        rule("13.1", "conditions hold for empty content as well").case("condition-for-nothing", get("/empty.txt", "If-None-Match: *\r\n"), reply(304)),
    ]
}
