//! The cluster as a page, and the same as JSON.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the page |
//! | `/status.json` | services, hosts, replicas and what is missing: as `dapple cluster --json status` |
//! | `/events.json` | the last decisions with their reasons |
//! | `/-/healthy` | `ok` |

use dapple_cluster::{Directory, Summary};
use dapple_http::Request;
use dapple_serve::http::{Body, Client, Reply, RequestBody, Service};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;
use subtle::ConstantTimeEq;

/// The page of one cluster. Its figures are read anew for each request.
pub(super) struct Page {
    directory: Directory,
    token: Option<String>,
}

impl Page {
    pub(super) fn new(directory: Directory, token: Option<&str>) -> Page {
        Page { directory, token: token.map(str::to_owned) }
    }

    fn admits(&self, request: &Request<'_>) -> bool {
        let Some(token) = &self.token else { return true };
        let of_field = request
            .fields
            .first("authorization")
            .and_then(|field| std::str::from_utf8(field).ok()?.strip_prefix("Bearer "));
        let query = request.query.unwrap_or_default().split('&').find_map(|part| part.strip_prefix("token="));
        let query = query.map(|token| percent_decode_str(token).collect::<Vec<u8>>());
        let is_same = |given: &[u8]| bool::from(given.ct_eq(token.as_bytes()));
        of_field.is_some_and(|given| is_same(given.as_bytes())) || query.is_some_and(|given| is_same(&given))
    }
}

impl Service for Page {
    async fn answer(&self, request: &Request<'_>, _body: &mut RequestBody<'_>, _client: &Client) -> Reply {
        if request.method != Method::GET && request.method != Method::HEAD {
            let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed here\n".to_owned());
            reply.headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return reply;
        }
        if request.path == "/-/healthy" {
            return text(StatusCode::OK, "ok\n".to_owned());
        }
        if !self.admits(request) {
            return text(StatusCode::UNAUTHORIZED, "give the token of this page: /?token=TOKEN\n".to_owned());
        }
        match request.path {
            "/" => reply(StatusCode::OK, include_str!("page.html").to_owned(), "text/html; charset=utf-8"),
            "/status.json" => json(self.directory.status().await.map(|status| Summary::of(&status))),
            "/events.json" => json(self.directory.events().await),
            _ => text(StatusCode::NOT_FOUND, "not found; try / or /status.json or /events.json\n".to_owned()),
        }
    }

    fn refuse(&self, status: StatusCode, reason: &str, _client: &Client) -> Reply {
        text(status, format!("{reason}\n"))
    }
}

fn json<T: serde::Serialize>(read: Result<T, dapple::etcd::Error>) -> Reply {
    match read
        .map_err(|error| error.to_string())
        .and_then(|value| serde_json::to_string(&value).map_err(|error| error.to_string()))
    {
        Ok(value) => reply(StatusCode::OK, value, "application/json"),
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

fn text(status: StatusCode, text: String) -> Reply {
    reply(status, text, "text/plain; charset=utf-8")
}

fn reply(status: StatusCode, body: String, content_type: &'static str) -> Reply {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Nothing comes from elsewhere, and no other page shows this one.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'";
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    Reply::new(status, headers, Body::Whole(body.into_bytes().into()))
}
