//! The answers as pages and as JSON.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::catalog::{Answer, Like};

/// The page with nothing but the search box.
pub(crate) fn start(packages: usize) -> Response {
    let text = format!(
        "<p>Type the name of a Debian package, such as <a href=\"/like/nginx\">nginx</a>. Of {packages} packages, the \
         answer has those that share the most with it: tags, section, dependencies. A rare category counts for more than \
         a common one.</p>"
    );
    page(StatusCode::OK, "Parallelisms", "", &text)
}

/// The answer about a package.
pub(crate) fn answer(name: &str, answer: &Answer, wants_json: bool) -> Response {
    if wants_json {
        return data(StatusCode::OK, &answer_json(name, answer));
    }
    let mut text = format!("<h2>{}</h2><p>{}</p>", escaped(name), escaped(&answer.package.summary));
    if !answer.same_source.is_empty() {
        let others: Vec<String> = answer.same_source.iter().map(|name| link(name)).collect();
        text += &format!("<p>From the same source: {}</p>", others.join(", "));
    }
    if answer.like.is_empty() {
        text += "<p>No other package shares a category with it.</p>";
    }
    text += "<ol>";
    for like in &answer.like {
        let reasons: Vec<String> = like.reasons.iter().take(REASONS_SHOWN_MAX).map(reason).collect();
        let more = if like.reasons.len() > REASONS_SHOWN_MAX { ", …" } else { "" };
        let (name, summary, percent) = (link(&like.name), escaped(&like.package.summary), like.score * 100.0);
        text +=
            &format!("<li>{name} <b>{percent:.0} %</b> {summary}<br><small>{}{more}</small></li>", reasons.join(", "));
    }
    text += &format!("</ol><p><a href=\"/like/{}?json\">the same as JSON</a></p>", encoded(name));
    page(StatusCode::OK, &format!("like {name}"), name, &text)
}

/// The packages of a category.
pub(crate) fn category(name: &str, members: &[String], wants_json: bool) -> Response {
    if wants_json {
        return data(StatusCode::OK, &json!({ "category": name, "packages": members }));
    }
    let links: Vec<String> = members.iter().take(MEMBERS_SHOWN_MAX).map(|name| link(name)).collect();
    let shown = if links.len() < members.len() { format!(", the first {}", links.len()) } else { String::new() };
    let text = format!("<h2>{}</h2><p>{} packages{shown}:</p><p>{}</p>", words(name), members.len(), links.join(", "));
    page(StatusCode::OK, name, "", &text)
}

/// The page about a name that no package has.
pub(crate) fn no_package(name: &str, nearest: &[&str], wants_json: bool) -> Response {
    let short: String = name.chars().take(100).collect();
    let error = format!("there is no package `{short}`");
    if wants_json {
        return data(StatusCode::NOT_FOUND, &json!({ "error": error, "nearest": nearest }));
    }
    let links: Vec<String> = nearest.iter().map(|name| link(name)).collect();
    let text = format!("<p>{}</p><p>Similar names: {}</p>", escaped(&error), links.join(", "));
    page(StatusCode::NOT_FOUND, "no such package", &short, &text)
}

/// Any other problem, in one sentence.
pub(crate) fn problem(status: StatusCode, error: &str, wants_json: bool) -> Response {
    match wants_json {
        true => data(status, &json!({ "error": error })),
        false => page(status, "a problem", "", &format!("<p>{}</p>", escaped(error))),
    }
}

fn answer_json(name: &str, answer: &Answer) -> Value {
    let like = |like: &Like| {
        let reasons = like
            .reasons
            .iter()
            .map(|(category, found)| json!({ "category": category, "packages": found.count, "weight": found.weight }));
        json!({
            "package": like.name,
            "score": like.score,
            "summary": like.package.summary,
            "reasons": reasons.collect::<Vec<Value>>(),
        })
    };
    json!({
        "package": name,
        "summary": answer.package.summary,
        "same_source": answer.same_source,
        "like": answer.like.iter().map(like).collect::<Vec<Value>>(),
    })
}

/// A shared category and the number of its packages.
fn reason((category, found): &(String, crate::catalog::Category)) -> String {
    format!("<a href=\"/category/{}\">{}</a> ({})", encoded(category), words(category), found.count)
}

/// A category as a reader wants it: `needs libssl3` for `needs:libssl3`.
fn words(category: &str) -> String {
    escaped(&category.replacen(':', " ", 1))
}

fn link(name: &str) -> String {
    format!("<a href=\"/like/{}\">{}</a>", encoded(name), escaped(name))
}

/// Text for HTML, also within the quotes of an attribute.
fn escaped(text: &str) -> String {
    let safe = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    safe.replace('"', "&quot;").replace('\'', "&#39;")
}

/// Text for the path of a URL.
pub(crate) fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() || b"+-._:".contains(&byte) => (byte as char).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

fn data(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{value}\n")).into_response()
}

fn page(status: StatusCode, title: &str, asked: &str, text: &str) -> Response {
    let (title, asked) = (escaped(title), escaped(asked));
    let body = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style><h1><a href=\"/\">Parallelisms</a></h1>\
         <form action=\"/like\"><label>Which packages are like <input name=\"package\" value=\"{asked}\" autofocus></label> \
         <button>?</button></form>{text}</html>\n"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'"),
    ];
    (status, headers, body).into_response()
}

const STYLE: &str = "body{font:16px/1.5 sans-serif;max-width:50em;margin:1em auto;padding:0 1em}\
    h1 a{color:inherit;text-decoration:none}li{margin:.5em 0}small{color:#555}";
const REASONS_SHOWN_MAX: usize = 6;
const MEMBERS_SHOWN_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_safe_in_pages_and_addresses() {
        assert_eq!(escaped("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
        assert_eq!(encoded("tag:a/b g++?#\"é"), "tag:a%2Fb%20g++%3F%23%22%C3%A9");
    }
}
