//! RFC 9110, sections 10 and 11: fields of requests and responses.

use super::table::{
    End, Requirement, Step, get, must, must_not, ok, read, refused, reply, request, rule, send, should,
};

pub(super) fn requirements() -> Vec<Requirement> {
    let expecting = |method: &str, lines: &str| request(method, "/", &format!("Expect: 100-continue\r\n{lines}"));
    vec![
        must("10.1.1", "a client that expects `100` gets it, or the final status, before it has sent its body")
            .script(
                "final-status-at-once",
                vec![send(expecting("POST", "Content-Length: 5\r\n")), read(reply(405).is("connection", "close"))],
                End::Closed,
            )
            .alone()
            .script(
                "final-status-at-once-for-get",
                vec![send(expecting("GET", "Content-Length: 5\r\n")), read(ok().is("connection", "close"))],
                End::Closed,
            )
            .alone()
            .script(
                "final-status-at-once-for-chunks",
                vec![
                    send(expecting("PUT", "Transfer-Encoding: chunked\r\n")),
                    read(reply(405).is("connection", "close")),
                ],
                End::Closed,
            )
            .alone(),
        should(
            "10.1.1",
            "a final status instead of `100` says that the connection ends; a body that has arrived already is read",
        )
        .case("body-that-did-not-wait", [expecting("GET", "Content-Length: 5\r\n"), b"hello".to_vec()].concat(), ok())
        .at_once(),
        must("10.1.1", "the expectation is ignored in HTTP/1.0, to which no `100` is ever sent").script(
            "expectation-in-http-1-0",
            vec![
                send("GET / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"),
                send("hello"),
                read(ok().old()),
            ],
            End::Closed,
        ),
        rule("10.1.1", "the expectation is ignored if no body follows")
            .case("expectation-without-a-body", expecting("GET", ""), ok())
            .case("expectation-of-nothing", expecting("GET", "Content-Length: 0\r\n"), ok())
            .case("expectation-in-upper-case", get("/", "Expect: 100-CONTINUE\r\n"), ok()),
        rule("10.1.1", "other expectations are answered with 417")
            .case("unknown-expectation", get("/", "Expect: the-unexpected\r\n"), refused(417))
            .case("two-expectations", get("/", "Expect: 100-continue, x=y\r\n"), refused(417))
            .case("empty-expectation", get("/", "Expect:\r\n"), refused(417)),
        must_not("10.1.1", "the server does not wait for the body before it sends `100`")
            .moot("shown by `final-status-at-once`"),
        must("10.1.1", "after `100` there is a final status")
            .moot("`100` is sent only if a body is read, and files need none"),
        rule("10.1.4", "codings that `TE` does not accept are not sent; no trailers are, and no coding but `chunked`")
            .case(
                "te",
                get("/", "TE: trailers, deflate;q=0.5\r\nConnection: TE\r\n"),
                ok().lacks("transfer-encoding").lacks("trailer"),
            ),
        rule("10.1", "`From`, `Referer` and `User-Agent` change nothing").case(
            "context",
            get("/", "From: a@b\r\nReferer: x:y\r\nUser-Agent: \r\n"),
            ok(),
        ),
        must("10.2.1", "a 405 lists the allowed methods").moot("checked for every reply of every case"),
        rule("10.2.2", "`Location` is an address, or relative to the target, and keeps the query")
            .case("location", get("/dir?a=b", ""), reply(301).is("location", "/dir/?a=b"))
            .case("location-with-escapes", get("/dir?a=%22%0a", ""), reply(301).is("location", "/dir/?a=%22%0a"))
            .case("location-is-no-other-host", get("//dir", ""), reply(404).lacks("location")),
        must("11.2", "no parameter occurs twice in a challenge").moot("no challenge is sent"),
        must("11.5", "a `realm` is a quoted string").moot("no challenge is sent"),
        must("11.6.1", "401 has a challenge")
            .moot("never sent: nothing asks for credentials, and `Authorization` is ignored"),
        rule("11.6.2", "credentials change nothing").case(
            "credentials",
            get("/", "Authorization: Basic YTpi\r\nProxy-Authorization: x\r\n"),
            ok(),
        ),
        rule("10.1.1", "a client that expects `100` and ends its side gets the final status").script(
            "expectation-and-half-closed",
            vec![send(expecting("POST", "Content-Length: 5\r\n")), Step::HalfClose, read(reply(405))],
            End::Closed,
        ),
    ]
}
