//! The requests of HKP, the protocol of key servers (draft-shaw-openpgp-hkp), and a page for people.

use axum::Router;
use axum::extract::{Form, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use dapple::store::Error;
use serde::Deserialize;

use crate::keys::{Facts, Key, Times};
use crate::registry::{Found, Problem, Registry};

/// The routes of the server.
pub(crate) fn router(registry: Registry) -> Router {
    Router::new()
        .route("/", get(start))
        .route("/pks/lookup", get(lookup))
        .route("/pks/add", post(add))
        .fallback(async || page(StatusCode::NOT_FOUND, "<p>There is no such page.</p>"))
        .with_state(registry)
}

/// The parameters of a look-up.
#[derive(Debug, Default, Deserialize)]
struct Lookup {
    #[serde(default)]
    op: String,
    #[serde(default)]
    search: String,
    /// Words with commas between them; `mr` asks for a form that programs read.
    #[serde(default)]
    options: String,
    /// `on` asks for user IDs, or addresses in them, that are the search.
    #[serde(default)]
    exact: String,
}

#[derive(Debug, Deserialize)]
struct Add {
    keytext: String,
}

async fn start(State(registry): State<Registry>) -> Response {
    match registry.count().await {
        Ok(count) => page(StatusCode::OK, &format!("<p>This server has {count} keys. {HOW_TO}</p>")),
        Err(error) => problem(&error.into()),
    }
}

async fn add(State(registry): State<Registry>, Form(Add { keytext }): Form<Add>) -> Response {
    match registry.add(keytext).await {
        Ok(fingerprints) => text(StatusCode::OK, &format!("stored: {}\n", fingerprints.join(" "))),
        Err(error) => problem(&error),
    }
}

async fn lookup(State(registry): State<Registry>, Query(asked): Query<Lookup>) -> Response {
    let is_for_program = asked.options.split(',').any(|option| option == "mr");
    let found = match asked.op.as_str() {
        "get" | "index" | "vindex" => registry.find(asked.search.trim()).await,
        _ => return text(StatusCode::NOT_IMPLEMENTED, "op is get, index or vindex\n"),
    };
    let mut found = match found {
        Ok(found) => found,
        Err(error) => return problem(&error),
    };
    if asked.exact == "on" && !asked.search.starts_with("0x") {
        found.keys.retain(|key| is_exact(key, asked.search.trim()));
        found.count = found.keys.len();
    }
    if found.keys.is_empty() {
        return text(StatusCode::NOT_FOUND, "no key matches\n");
    }
    let count = [("X-HKP-Results-Count", found.count.to_string())];
    match (asked.op.as_str(), is_for_program) {
        ("get", _) => {
            let armored: String = found.keys.iter().map(Key::armored).collect();
            (count, [(header::CONTENT_TYPE, "application/pgp-keys")], OPEN, armored).into_response()
        }
        (_, true) => (count, OPEN, text(StatusCode::OK, &index(&found))).into_response(),
        (_, false) => (count, OPEN, page(StatusCode::OK, &list(&found))).into_response(),
    }
}

/// Whether a user ID of the key, or the address in one, is this text.
fn is_exact(key: &Key, text: &str) -> bool {
    let address = format!("<{text}>");
    key.facts().users.iter().any(|(user, _)| user == text || user.ends_with(&address))
}

/// The list for programs: a line for each key, and below it one for each of its user IDs.
fn index(found: &Found) -> String {
    let mut lines = format!("info:1:{}\n", found.keys.len());
    for Facts { fingerprint, algorithm, bits, times, users } in found.keys.iter().map(Key::facts) {
        let bits = bits.map_or(String::new(), |bits| bits.to_string());
        lines += &format!("pub:{fingerprint}:{algorithm}:{bits}:{}\n", columns(times));
        for (user, times) in users {
            lines += &format!("uid:{}:{}\n", percent_encoded(&user), columns(times));
        }
    }
    lines
}

fn columns(Times { created, expires, is_revoked }: Times) -> String {
    let expires = expires.map_or(String::new(), |time| time.to_string());
    format!("{created}:{expires}:{}", if is_revoked { "r" } else { "" })
}

/// The list for people.
fn list(found: &Found) -> String {
    let mut list = format!("<p>{} keys match; {} are shown.</p><ul>", found.count, found.keys.len());
    for Facts { fingerprint, times, users, .. } in found.keys.iter().map(Key::facts) {
        let revoked = |times: &Times| if times.is_revoked { " <b>revoked</b>" } else { "" };
        let fetch = format!("/pks/lookup?op=get&amp;search=0x{fingerprint}");
        list += &format!("<li><a href=\"{fetch}\"><code>{fingerprint}</code></a>{}", revoked(&times));
        for (user, times) in &users {
            list += &format!("<br>{}{}", escaped(user), revoked(times));
        }
        list += "</li>";
    }
    list + "</ul>"
}

fn problem(problem: &Problem) -> Response {
    let status = match problem {
        Problem::Unusable(_) | Problem::NoTerm => StatusCode::BAD_REQUEST,
        Problem::TooCommon => StatusCode::PAYLOAD_TOO_LARGE,
        Problem::Store(Error::Unavailable(_)) => StatusCode::SERVICE_UNAVAILABLE,
        Problem::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    text(status, &format!("{problem}\n"))
}

fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        byte if byte.is_ascii_graphic() && byte != b':' && byte != b'%' => (byte as char).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn text(status: StatusCode, text: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text.to_owned()).into_response()
}

fn page(status: StatusCode, text: &str) -> Response {
    let body = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Key server</title><h1><a href=\"/\">Key server</a></h1>\
         <form action=\"/pks/lookup\"><input type=\"hidden\" name=\"op\" value=\"index\"><label>Address, words or 0xID \
         <input name=\"search\" required></label> <button>Search</button></form>{text}\
         <form action=\"/pks/add\" method=\"post\"><label>Armored key<br><textarea name=\"keytext\" rows=\"8\" cols=\"66\" required>\
         </textarea></label><br><button>Add</button></form></html>\n"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; form-action 'self'"),
    ];
    (status, headers, body).into_response()
}

/// Scripts of any page may read the keys.
const OPEN: [(header::HeaderName, &str); 1] = [(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")];
const HOW_TO: &str = "gpg talks to it: <code>gpg --keyserver hkp://HOST:PORT --search-keys ann@example.org</code>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_ids_are_safe_in_lists_for_programs_and_people() {
        assert_eq!(percent_encoded("Ann: 100%\n<é>"), "Ann%3A%20100%25%0A<%C3%A9>");
        assert_eq!(escaped("<script>\"&"), "&lt;script&gt;&quot;&amp;");
    }
}
