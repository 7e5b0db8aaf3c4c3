//! RFC 9112, sections 8 and 9: incomplete messages, and the life of a connection.

use super::site::TEXT;
use super::table::{
    End, Requirement, Step, get, must, must_not, ok, read, refused, reply, request, rule, send, should, silence,
};

pub(super) fn requirements() -> Vec<Requirement> {
    let mut all = incomplete();
    all.extend(persistence());
    all.extend(pipelining());
    all.extend(ending());
    all
}

fn incomplete() -> Vec<Requirement> {
    let cut = |bytes: &str| vec![send(bytes), Step::HalfClose, read(reply(400).is("connection", "close"))];
    vec![
        rule("8", "a request that is cut short is not carried out; a client that still reads gets an error")
            .script("request-line-cut-short", cut("GET / HT"), End::Closed)
            .script("fields-cut-short", cut("GET / HTTP/1.1\r\nHost: a\r\n"), End::Closed)
            .script("empty-line-cut-short", cut("GET / HTTP/1.1\r\nHost: a\r\n\r"), End::Closed)
            .script(
                "second-request-cut-short",
                vec![send(get("/", "")), read(ok()), send("GET /te"), Step::HalfClose, read(reply(400))],
                End::Closed,
            ),
        must("6.3", "a body shorter than its stated length is an incomplete message, and ends the connection").script(
            "body-cut-short",
            cut("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello"),
            End::Closed,
        ),
        rule("9.6", "a client that has ended its side is answered, because it can still read")
            .script(
                "half-closed",
                vec![send(get("/text.txt", "")), Step::HalfClose, read(reply(200).body(TEXT))],
                End::Closed,
            )
            .script(
                "half-closed-behind-several",
                vec![
                    send([get("/", ""), get("/text.txt", "")].concat()),
                    Step::HalfClose,
                    read(ok()),
                    read(reply(200).body(TEXT)),
                ],
                End::Closed,
            )
            .script(
                "half-closed-behind-a-big-reply",
                vec![send(get("/big.bin", "")), Step::HalfClose, read(reply(200))],
                End::Closed,
            )
            .script("half-closed-without-a-word", vec![Step::HalfClose], End::Closed)
            .script("half-closed-behind-empty-lines", vec![send("\r\n\r\n"), Step::HalfClose], End::Closed),
    ]
}

fn persistence() -> Vec<Requirement> {
    let old = |lines: &str| format!("GET / HTTP/1.0\r\n{lines}\r\n");
    vec![
        rule("9.3", "a connection of HTTP/1.1 goes on unless one side says `close`")
            .script(
                "many-requests",
                (0..20).flat_map(|_| [send(get("/", "")), read(ok().lacks("connection"))]).collect(),
                End::Open,
            )
            .case("connection-with-another-option", get("/", "Connection: keep-alive\r\n"), ok())
            .case("connection-with-an-unknown-option", get("/", "Connection: foo, X-Bar\r\n"), ok())
            .case("connection-goes-on-behind-404", get("/missing", ""), reply(404))
            .case("connection-goes-on-behind-405", request("DELETE", "/", ""), reply(405)),
        rule("9.3", "a connection of HTTP/1.0 ends unless the client says `keep-alive`, which is confirmed")
            .case("http-1-0-ends", old(""), ok().old().closed())
            .case("http-1-0-keep-alive", old("Connection: keep-alive\r\n"), ok().old().is("connection", "keep-alive"))
            .case(
                "http-1-0-keep-alive-in-upper-case",
                old("Connection: Keep-Alive\r\n"),
                ok().old().is("connection", "keep-alive"),
            )
            .case(
                "http-1-0-keep-alive-and-close",
                old("Connection: keep-alive, close\r\n"),
                ok().old().is("connection", "close").closed(),
            ),
        must("9.3", "the whole body of a request is read, or the connection ends after the reply")
            .case("body-that-nobody-wants", [&get("/", "Content-Length: 5\r\n"), &b"hello"[..]].concat(), ok())
            .case(
                "body-too-long-to-drop",
                get("/", "Content-Length: 1000000000\r\n"),
                ok().is("connection", "close").closed(),
            )
            .case(
                "body-of-post-too-long-to-drop",
                request("POST", "/", "Content-Length: 1000000000\r\n"),
                refused(405),
            ),
    ]
}

fn pipelining() -> Vec<Requirement> {
    let mixed = [
        get("/", ""),
        get("/missing", ""),
        request("HEAD", "/text.txt", ""),
        get("/text.txt", "Range: bytes=0-3\r\n"),
        request("POST", "/", "Content-Length: 5\r\n"),
        b"hello".to_vec(),
        get("/text.txt", "If-None-Match: {etag}\r\n"),
        request("OPTIONS", "*", ""),
        get("/text.txt", ""),
    ];
    let replies =
        ok().then(reply(404).then(reply(200).head().then(
            reply(206).body("0123").then(reply(405).then(reply(304).then(reply(204).then(reply(200).body(TEXT))))),
        )));
    vec![
        must("9.3.2", "replies to requests that arrived together are sent in the order of the requests")
            .case("pipeline", mixed.concat(), replies)
            .case(
                "pipeline-with-a-big-reply",
                [get("/big.bin", ""), get("/text.txt", "")].concat(),
                reply(200).then(reply(200).body(TEXT)),
            ),
        rule("9.3.2", "in a pipeline, an error ends the connection after the replies to earlier requests")
            .case(
                "pipeline-with-an-error",
                [get("/", ""), b"NONSENSE\r\n\r\n".to_vec()].concat(),
                ok().then(refused(400)),
            )
            .case(
                "pipeline-with-a-framing-error",
                [get("/", ""), get("/", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n")].concat(),
                ok().then(refused(400)),
            ),
    ]
}

fn ending() -> Vec<Requirement> {
    vec![
        must("9.6", "a connection ends after the reply if its client said `close`")
            .case("close", get("/", "Connection: close\r\n"), ok().is("connection", "close").closed())
            .case("close-in-upper-case", get("/", "Connection: CLOSE\r\n"), ok().is("connection", "close").closed())
            .case(
                "close-in-a-list",
                get("/", "Connection: foo, close ,bar\r\n"),
                ok().is("connection", "close").closed(),
            )
            .case(
                "close-in-a-second-field",
                get("/", "Connection: foo\r\nConnection: close\r\n"),
                ok().is("connection", "close").closed(),
            )
            .case(
                "close-beats-keep-alive",
                get("/", "Connection: keep-alive, close\r\n"),
                ok().is("connection", "close").closed(),
            )
            .case(
                "close-behind-404",
                get("/missing", "Connection: close\r\n"),
                reply(404).is("connection", "close").closed(),
            )
            .case(
                "close-for-head",
                request("HEAD", "/", "Connection: close\r\n"),
                reply(200).head().is("connection", "close").closed(),
            )
            .case(
                "close-behind-a-big-reply",
                get("/big.bin", "Connection: close\r\n"),
                reply(200).is("content-length", "1048576").closed(),
            ),
        must_not("9.6", "requests after one with `close` are not carried out")
            .case(
                "request-behind-close",
                [get("/", "Connection: close\r\n"), get("/secret.txt", "")].concat(),
                ok().is("connection", "close").closed(),
            )
            .at_once()
            .case(
                "request-behind-http-1-0",
                ["GET / HTTP/1.0\r\n\r\n", "GET /secret.txt HTTP/1.1\r\nHost: a\r\n\r\n"].concat(),
                ok().old().closed(),
            )
            .at_once(),
        must("9.6", "a connection ends after the reply if its server said `close`")
            .moot("every case waits for the end, or another reply"),
        must("9.3", "a server that keeps no connections says `close` in every reply").moot("connections are kept"),
        must("9.7", "over TLS, everything is sent as application data")
            .moot("shown in dapple-tls, and by the tests of TLS, with clients of another library"),
        should("9.6", "a reply that ends the connection says `close`")
            .moot("checked for every case in which an error ends the connection"),
        must("9.8", "over TLS, an alert says that the connection ends")
            .moot("shown in dapple-tls, tests/it: the end of a stream differs from a cut"),
        rule("9.3", "a connection that is only opened and closed does no harm").case(
            "nothing-but-a-connection",
            "",
            closing(),
        ),
        should("9.5", "idle and slow clients do not keep a connection for ever").moot("shown by the tests of limits"),
    ]
}

/// An idle connection takes a request.
fn closing() -> super::table::Outcome {
    super::table::Outcome { end: End::Open, ..silence() }
}
