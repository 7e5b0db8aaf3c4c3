//! The answers as pages and as JSON.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::front::{Answer, Counts};

/// The page with nothing but the search box.
pub(crate) fn start() -> Response {
    page(
        StatusCode::OK,
        "",
        "<p>Documents that have all of the words. If a part of the index does not answer in time, the answer says so.</p>",
    )
}

/// The answer to a query.
pub(crate) fn answer(query: &str, answer: &Answer, cached: bool, took: Duration, wants_json: bool) -> Response {
    if wants_json {
        let missing = answer.missing.iter().map(|part| json!({ "part": part.name, "why": part.why.to_string() }));
        return data(
            StatusCode::OK,
            &json!({
                "query": query,
                "harvest": answer.harvest,
                "missing": missing.collect::<Vec<Value>>(),
                "found": answer.found,
                "documents": answer.documents,
                "cached": cached,
                "ms": took.as_secs_f64() * 1e3,
                "hits": answer.hits,
            }),
        );
    }
    let Answer { found, documents, harvest, missing, hits } = answer;
    let mut text = format!("<p>{found} of {documents} documents, in {} ms.", took.as_millis());
    if !missing.is_empty() {
        let names: Vec<String> = missing
            .iter()
            .map(|part| format!("{} ({})", escaped(&part.name), escaped(&part.why.to_string())))
            .collect();
        text += &format!(
            " <b>This answer covers {:.0} % of the index</b>, because a part of it did not answer: {}.",
            harvest * 100.0,
            names.join(", ")
        );
    }
    text += "</p><ol>";
    for hit in hits {
        text += &format!(
            "<li><b>{}</b> <small>{}</small><br>{}</li>",
            escaped(&hit.title),
            escaped(&hit.place),
            escaped(&hit.snippet)
        );
    }
    text += "</ol>";
    page(StatusCode::OK, query, &text)
}

/// The queries since the start, with their yield and harvest, as JSON.
pub(crate) fn status(counts: &Counts) -> Response {
    let [whole, partial, cached, none, millis] =
        [&counts.whole, &counts.partial, &counts.cached, &counts.none, &counts.harvest_millis]
            .map(|count| count.load(Relaxed));
    let answered = whole + partial + cached;
    let fraction = |part: f64, all: u64| if all == 0 { 1.0 } else { part / all as f64 };
    data(
        StatusCode::OK,
        &json!({
            "whole": whole,
            "partial": partial,
            "cached": cached,
            "none": none,
            "yield": fraction(answered as f64, answered + none),
            "harvest": fraction(millis as f64 / 1e3, answered),
        }),
    )
}

/// Any problem, in one sentence.
pub(crate) fn problem(status: StatusCode, error: &str, wants_json: bool) -> Response {
    match wants_json {
        true => data(status, &json!({ "error": error })),
        false => page(status, "", &format!("<p>{}</p>", escaped(error))),
    }
}

/// Text for HTML, also within the quotes of an attribute.
fn escaped(text: &str) -> String {
    let safe = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    safe.replace('"', "&quot;").replace('\'', "&#39;")
}

fn data(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{value}\n")).into_response()
}

fn page(status: StatusCode, asked: &str, text: &str) -> Response {
    let asked = escaped(asked);
    let body = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Search {asked}</title><style>{STYLE}</style><h1><a href=\"/\">Search</a></h1>\
         <form action=\"/search\"><input name=\"q\" value=\"{asked}\" aria-label=\"words\" autofocus> <button>Search</button></form>\
         {text}</html>\n"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'"),
    ];
    (status, headers, body).into_response()
}

const STYLE: &str = "body{font:16px/1.5 sans-serif;max-width:50em;margin:1em auto;padding:0 1em}\
    h1 a{color:inherit;text-decoration:none}li{margin:.5em 0}small{color:#555}";

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn texts_are_safe_in_pages() {
        assert_eq!(escaped("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
    }
}
