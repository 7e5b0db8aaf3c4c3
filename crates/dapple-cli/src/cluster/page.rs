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
use dapple_serve::bearer::Token;
use dapple_serve::http::{Client, Reply, RequestBody, Service};
use http::header::ALLOW;
use http::{HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;

/// The page of one cluster. Its figures are read anew for each request.
pub(super) struct Page {
    directory: Directory,
    token: Option<Token>,
}

impl Page {
    pub(super) fn new(directory: Directory, token: Option<&str>) -> Page {
        Page { directory, token: token.map(Token::unchecked) }
    }

    fn admits(&self, request: &Request<'_>) -> bool {
        let Some(token) = &self.token else { return true };
        let query = request.query.unwrap_or_default().split('&').find_map(|part| part.strip_prefix("token="));
        request.fields.first("authorization").is_some_and(|field| token.admits_field(field))
            || query.is_some_and(|given| token.is(&percent_decode_str(given).collect::<Vec<u8>>()))
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
            "/" => {
                Reply::about_program(StatusCode::OK, include_str!("page.html").to_owned(), "text/html; charset=utf-8")
            }
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
        Ok(value) => Reply::about_program(StatusCode::OK, value, "application/json"),
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

fn text(status: StatusCode, text: String) -> Reply {
    Reply::about_program(status, text, "text/plain; charset=utf-8")
}
