//! Handlers: small programs behind `/run/HANDLER/NAME`, as CGI has them, with their state in rows of the table.
//!
//! A PUT with the token opens a counter or a guest book, so that strangers cannot fill the table with new ones.

use axum::extract::{Form, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use crate::front::{Front, Problem, Reply, TURNS_MAX, contended};
use crate::message::{Changes, Expected, Row};

/// The handlers.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Handler {
    /// A number; each POST adds one.
    Counter,
    /// A page with a form, and the last entries.
    Guestbook,
}

/// The fields of the guest book's form. The counter has none.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Fields {
    name: String,
    text: String,
}

/// The row of a counter or a guest book: the number of its visits or entries so far.
struct Head {
    /// The key of this row. Those of entries begin with it.
    group: String,
    number: u64,
    version: u64,
}

impl Head {
    fn group(handler: Handler, name: &str) -> Result<String, Problem> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_good = (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_letter);
        if is_good { Ok(format!("{handler:?}/{name}/")) } else { Err(Problem::Missing) }
    }

    async fn read(front: &Front, handler: Handler, name: &str) -> Result<Head, Problem> {
        let group = Head::group(handler, name)?;
        let rows = front.rows(&group, group.clone(), format!("{group}\0")).await?;
        let (_, version, value) = rows.into_iter().next().ok_or(Problem::Missing)?;
        let number = value.parse().map_err(|_| Problem::Failed(format!("the row {group} is no number")))?;
        Ok(Head { group, number, version })
    }

    /// Adds one, and `rows`, if no other request has come between.
    async fn add(&self, front: &Front, mut rows: Changes) -> Result<u64, Problem> {
        rows.push((self.group.clone(), Some((self.number + 1).to_string())));
        front.change_rows(&self.group, Expected::Version(self.version), rows).await.map(|()| self.number + 1)
    }

    /// The key of an entry. The last entries are the first rows.
    fn entry(&self, number: u64) -> String {
        format!("{}{:020}", self.group, u64::MAX - number)
    }
}

/// Opens a counter or a guest book.
pub(crate) async fn open(
    State(front): State<Front>,
    Path((handler, name)): Path<(Handler, String)>,
) -> Result<StatusCode, Problem> {
    let group = Head::group(handler, &name)?;
    match front.change_rows(&group, Expected::Absent, vec![(group.clone(), Some("0".to_owned()))]).await {
        Err(Problem::Conflict) => Ok(StatusCode::NO_CONTENT),
        opened => opened.map(|()| StatusCode::CREATED),
    }
}

pub(crate) async fn show(State(front): State<Front>, Path((handler, name)): Path<(Handler, String)>) -> Reply {
    let Head { group, number: count, .. } = Head::read(&front, handler, &name).await?;
    match handler {
        Handler::Counter => Ok(number(count)),
        Handler::Guestbook => Ok(page(&name, &front.rows(&group, format!("{group}0"), format!("{group}~")).await?)),
    }
}

/// Runs a handler on a form. It begins again when another request has come between, so that none is lost.
pub(crate) async fn post(
    State(front): State<Front>,
    Path((handler, name)): Path<(Handler, String)>,
    Form(fields): Form<Fields>,
) -> Reply {
    if fields.name.len() > NAME_LEN_MAX || fields.text.len() > TEXT_LEN_MAX {
        return Err(Problem::Unfit(format!("a name has {NAME_LEN_MAX} bytes, and a text {TEXT_LEN_MAX} at most")));
    }
    // Lines of a name would be those of its text.
    let entry = format!("{}\n{}", fields.name.replace(char::is_control, " "), fields.text);
    for _ in 0..TURNS_MAX {
        let head = Head::read(&front, handler, &name).await?;
        let mut rows = Vec::new();
        if let Handler::Guestbook = handler {
            rows.push((head.entry(head.number), Some(entry.clone())));
            rows.extend(head.number.checked_sub(ENTRIES_MAX).map(|old| (head.entry(old), None)));
        }
        return match (head.add(&front, rows).await, handler) {
            // Each such turn is another client's success.
            (Err(Problem::Conflict), _) => continue,
            (added, Handler::Counter) => added.map(number),
            (added, Handler::Guestbook) => {
                added.map(|_| Redirect::to(&format!("/run/guestbook/{name}")).into_response())
            }
        };
    }
    Err(contended())
}

fn number(number: u64) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], format!("{number}\n")).into_response()
}

fn page(name: &str, rows: &[Row]) -> Response {
    let mut entries = String::new();
    for (_, _, entry) in rows {
        let (from, text) = entry.split_once('\n').unwrap_or_default();
        entries += &format!("<li><b>{}</b>: {}</li>", escaped(from), escaped(text));
    }
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{name}</title><h1>{name}</h1>\
         <form method=\"post\"><label>Name <input name=\"name\" required maxlength=\"{NAME_LEN_MAX}\"></label> \
         <label>Text <input name=\"text\" required maxlength=\"{TEXT_LEN_MAX}\"></label> <button>Sign</button></form>\
         <ul>{entries}</ul></html>\n"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; form-action 'self'"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, page).into_response()
}

/// Text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The longest form, encoded.
pub(crate) const FORM_LEN_MAX: usize = 16 << 10;
const NAME_LEN_MAX: usize = 60;
const TEXT_LEN_MAX: usize = 2000;
/// The entries of a guest book; older ones are removed.
const ENTRIES_MAX: u64 = 100;
