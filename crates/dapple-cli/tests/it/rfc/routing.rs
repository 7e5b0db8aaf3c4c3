//! RFC 9110, sections 6 and 7: messages, trailers, and what concerns the connection.

use super::table::{Requirement, get, must, must_not, ok, reply, request, rule};

pub(super) fn requirements() -> Vec<Requirement> {
    vec![
        rule("6.4", "what follows the fields is the content of the request, and none of it changes what is asked for")
            .case("content-without-meaning", [&get("/text.txt", "Content-Length: 9\r\n"), &b"/packed.j"[..]].concat(), reply(200).body(super::site::TEXT)),
        must_not("6.5.1", "trailers are not taken for fields of the head")
            .case(
                "trailers-without-meaning",
                "GET /text.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: Range\r\n\r\n0\r\nRange: bytes=0-0\r\nIf-None-Match: *\r\n\r\n",
                reply(200).body(super::site::TEXT),
            ),
        must_not("6.5.1", "no trailers are sent").moot("replies in chunks have none: read by every case with one"),
        must_not("6.2", "no version is sent but that which the server speaks, the highest of the client's major one")
            .moot("checked for every reply of every case: all begin with `HTTP/1.1`"),
        must_not("6.6.1", "a server without a clock sends no date").moot("the machine has a clock"),
        must("6.6.1", "replies of 2xx, 3xx and 4xx have a date").moot("checked for every reply of every case"),
        must_not("7.1", "the forms of targets that are for `CONNECT` and `OPTIONS` stand with no other method")
            .moot("see RFC 9112, 3.2.3 and 3.2.4"),
        rule("7.2", "a request with a malformed or doubled host is not routed by a guess").moot("see RFC 9112, 3.2"),
        rule("7.6.1", "options of `Connection` are the same in upper and lower case")
            .case("option-in-upper-case", get("/", "Connection: Close\r\n"), ok().is("connection", "close").closed()),
        must("7.6.1", "a field of a reply that is for the connection alone is named in `Connection`").moot("checked for every reply of every case"),
        must_not("7.6.1", "`Connection` in a reply names no field that is for every recipient").moot("checked for every reply of every case"),
        rule("7.6.2", "`OPTIONS` with `Max-Forwards` is answered, whatever the number, by who is asked for the resource")
            .case("max-forwards-0", request("OPTIONS", "/", "Max-Forwards: 0\r\n"), reply(204).has("allow"))
            .case("max-forwards-nonsense", get("/", "Max-Forwards: x\r\n"), ok()),
        must_not("7.8", "the protocol is not switched unless the client asked for it, and need not be")
            .case("upgrade-to-h2c", get("/", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"), ok().lacks("upgrade"))
            .case("upgrade-to-websocket", get("/", "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), ok().lacks("upgrade"))
            .case("upgrade-without-the-option", get("/", "Upgrade: h2c\r\n"), ok().lacks("upgrade")),
        must("7.8", "`Upgrade` in HTTP/1.0 is ignored")
            .case("upgrade-in-http-1-0", "GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", ok().old().lacks("upgrade").closed()),
        must("7.8", "whoever sends `Upgrade` names it in `Connection`").moot("checked for every reply of every case"),
        must_not("7.8", "the protocol is not switched unless the new one can honor the request").moot("no protocol is switched to"),
        must("7.8", "with `Upgrade` and `Expect`, `100` comes first").moot("no protocol is switched to"),
    ]
}
