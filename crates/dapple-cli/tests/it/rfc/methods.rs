//! RFC 9110, section 9: methods.

use super::site::TEXT;
use super::table::{Outcome, Requirement, bad, get, must, must_not, ok, reply, request, rule, should};

const ALLOWED: &str = "GET, HEAD, OPTIONS";

pub(super) fn requirements() -> Vec<Requirement> {
    let not_allowed = || -> Outcome { reply(405).is("allow", ALLOWED).into() };
    vec![
        must("9.1", "`GET` and `HEAD` are supported").case("get", get("/text.txt", ""), reply(200).body(TEXT)).case(
            "head",
            request("HEAD", "/text.txt", ""),
            reply(200).head(),
        ),
        should("9.1", "an unknown method is answered with 501; upper and lower case differ").each(
            "unknown-method",
            ["BREW", "get", "Get", "GETS", "PROPFIND", "X", "!#$%&'*+-.^_`|~"].map(|method| request(method, "/", "")),
            || reply(501).into(),
        ),
        should("9.1", "a known method that is not allowed is answered with 405")
            .each(
                "method-not-allowed",
                ["POST", "PUT", "DELETE", "PATCH", "TRACE"].map(|method| request(method, "/text.txt", "")),
                not_allowed,
            )
            .case(
                "method-not-allowed-with-a-body",
                [request("PUT", "/text.txt", "Content-Length: 5\r\n"), b"hello".to_vec(), get("/text.txt", "")]
                    .concat(),
                reply(405).then(reply(200).body(TEXT)),
            ),
        rule("9.3.1", "the content of a `GET` has no meaning").case(
            "get-with-content",
            [get("/text.txt", "Content-Length: 5\r\n"), b"hello".to_vec(), get("/", "")].concat(),
            reply(200).body(TEXT).then(ok()),
        ),
        must_not("9.3.2", "the reply to `HEAD` has no content")
            .case(
                "head-without-content",
                [request("HEAD", "/text.txt", ""), get("/", "")].concat(),
                reply(200).head().then(ok()),
            )
            .case(
                "head-without-content-for-404",
                [request("HEAD", "/missing", ""), get("/", "")].concat(),
                reply(404).head().then(ok()),
            )
            .case(
                "head-without-content-for-301",
                [request("HEAD", "/dir", ""), get("/", "")].concat(),
                reply(301).head().then(ok()),
            )
            .case(
                "head-without-content-for-412",
                [request("HEAD", "/text.txt", "If-Match: \"x\"\r\n"), get("/", "")].concat(),
                reply(412).head().then(ok()),
            )
            .case(
                "head-without-content-for-406",
                [request("HEAD", "/text.txt", "Accept-Encoding: *;q=0\r\n"), get("/", "")].concat(),
                reply(406).head().then(ok()),
            )
            .case(
                "head-without-content-in-http-1-0",
                "HEAD /text.txt HTTP/1.0\r\n\r\n",
                reply(200).head().old().is("content-length", "36").closed(),
            ),
        should("9.3.2", "the fields in the reply to `HEAD` are those of `GET`")
            .case(
                "fields-for-head",
                request("HEAD", "/text.txt", ""),
                reply(200)
                    .head()
                    .has("etag")
                    .is("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")
                    .is("accept-ranges", "bytes")
                    .contains("content-type", "text/plain"),
            )
            .case(
                "coding-for-head",
                request("HEAD", "/packed.js", "Accept-Encoding: br\r\n"),
                reply(200).head().is("content-encoding", "br"),
            ),
        must("9.3.6", "`CONNECT` without a port, or with an invalid one, is refused").each(
            "connect-without-a-port",
            ["a", "a:", ":80", "a:99999", "a:x", "a:-1", "[::1]", "a:80/", "http://a:80", "/", "user@a:80"]
                .map(|target| format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n")),
            bad,
        ),
        rule("9.3.6", "an origin server opens no tunnels").case(
            "connect",
            "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
            reply(405).is("allow", ALLOWED),
        ),
        should("9.3.7", "`OPTIONS` lists the allowed methods, for one target and for the whole server")
            .case("options", request("OPTIONS", "/text.txt", ""), reply(204).is("allow", ALLOWED).empty())
            .case("options-of-all", request("OPTIONS", "*", ""), reply(204).is("allow", ALLOWED).empty())
            .case(
                "options-with-content",
                [request("OPTIONS", "*", "Content-Type: text/plain\r\nContent-Length: 2\r\n"), b"hi".to_vec()].concat(),
                reply(204),
            ),
        should("9.3.8", "`TRACE` does not echo the request").case(
            "trace",
            request("TRACE", "/", "Cookie: secret\r\n"),
            reply(405).is("allow", ALLOWED),
        ),
        must("9.2.1", "a safe method does nothing unsafe").moot("no request changes anything"),
        should("9.3.3", "a 201 reports what `POST` made").moot("files are only read"),
        must("9.3.4", "a 201, 200, 204 or 3xx reports what `PUT` made or changed, or where it belongs")
            .moot("files are only read"),
        must_not("9.3.4", "no validator is sent for content that `PUT` changed in transit").moot("files are only read"),
        should("9.3.5", "a 202, 204 or 200 reports what `DELETE` did").moot("files are only read"),
        must_not("9.3.6", "2xx to `CONNECT` has neither length nor coding").moot("no tunnel is opened"),
    ]
}
