//! RFC 9110, sections 6 and 7: messages, trailers, and connections.

use super::table::{Requirement, get, must, must_not, ok, reply, request, rule};

pub(super) fn requirements() -> Vec<Requirement> {
    vec![
        rule("6.4", "the bytes after the fields are the content of the request, and do not change its target")
            .case("content-without-meaning", [&get("/text.txt", "Content-Length: 9\r\n"), &b"/packed.j"[..]].concat(), reply(200).body(super::site::TEXT)),
        must_not("6.5.1", "trailers are not taken for fields of the head")
            .case(
                "trailers-without-meaning",
                "GET /text.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: Range\r\n\r\n0\r\nRange: bytes=0-0\r\nIf-None-Match: *\r\n\r\n",
                reply(200).body(super::site::TEXT),
            ),
        must_not("6.5.1", "no trailers are sent").moot("chunked replies have none: every case with one checks that"),
        must_not("6.2", "the server sends only the version that it speaks, the highest of the client's major version")
            .moot("checked for every reply of every case: all begin with `HTTP/1.1`"),
        must_not("6.6.1", "a server without a clock sends no date").moot("the machine has a clock"),
        must("6.6.1", "replies of 2xx, 3xx and 4xx have a date").moot("checked for every reply of every case"),
        must_not("7.1", "the forms of targets for `CONNECT` and `OPTIONS` occur with no other method")
            .moot("see RFC 9112, 3.2.3 and 3.2.4"),
        rule("7.2", "a request with a malformed or doubled host is not routed by a guess").moot("see RFC 9112, 3.2"),
        rule("7.6.1", "options of `Connection` are the same in upper and lower case")
            .case("option-in-upper-case", get("/", "Connection: Close\r\n"), ok().is("connection", "close").closed()),
        must("7.6.1", "a reply's field that is only for the connection is named in `Connection`").moot("checked for every reply of every case"),
        must_not("7.6.1", "`Connection` in a reply names no field that is for every recipient").moot("checked for every reply of every case"),
        rule("7.6.2", "the server that is asked for the resource answers `OPTIONS` with `Max-Forwards`, whatever the \
            number")
            .case("max-forwards-0", request("OPTIONS", "/", "Max-Forwards: 0\r\n"), reply(204).has("allow"))
            .case("max-forwards-nonsense", get("/", "Max-Forwards: x\r\n"), ok()),
        must_not("7.8", "the protocol is not switched unless the client asked for it, and need not be")
            .case("upgrade-to-h2c", get("/", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"), ok().lacks("upgrade"))
            .case("upgrade-to-websocket", get("/", "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), ok().lacks("upgrade"))
            .case("upgrade-without-the-option", get("/", "Upgrade: h2c\r\n"), ok().lacks("upgrade")),
        must("7.8", "`Upgrade` in HTTP/1.0 is ignored")
            .case("upgrade-in-http-1-0", "GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", ok().old().lacks("upgrade").closed()),
        must("7.8", "a sender of `Upgrade` names it in `Connection`").moot("checked for every reply of every case"),
        must_not("7.8", "the protocol changes only if the new one can honor the request").moot("the protocol never changes"),
        must("7.8", "with `Upgrade` and `Expect`, `100` comes first").moot("the protocol never changes"),
    ]
}
