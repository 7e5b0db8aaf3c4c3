//! Refusals before dav-server begins with a request: it checks a tree file by file, and has removed a part of it when it meets a file
//! that the user may not remove, or finds that a directory was to be moved into itself.

use dav_server::fs::FsError;
use http::{HeaderMap, Method, StatusCode, Uri, header};

use super::Caller;
use crate::path::TreePath;
use crate::rights::May;

/// A refusal: its status, and its text.
pub(crate) type Refusal = (StatusCode, &'static str);

/// Checks the rights and the destination of a request.
///
/// # Errors
///
/// The refusal.
pub(crate) fn check(
    caller: &Caller,
    method: &Method,
    uri: &Uri,
    path: &TreePath,
    fields: &HeaderMap,
) -> Result<(), Refusal> {
    let checked = match method.as_str() {
        "DELETE" => caller.check_all(path, May::Write),
        "LOCK" => caller.check(path, May::Write),
        "COPY" | "MOVE" => {
            let to = destination(uri, fields)?;
            if to.is_in(path) || path.is_in(&to) {
                return Err((
                    StatusCode::FORBIDDEN,
                    "a file cannot be copied or moved onto itself, nor into what it holds",
                ));
            }
            let from = if method.as_str() == "MOVE" { caller.check_all(path, May::Write) } else { Ok(()) };
            from.and_then(|()| caller.check_all(&to, May::Write))
        }
        "PUT" | "PATCH" => return check_part(method, fields),
        _ => Ok(()),
    };
    checked.map_err(|error| match error {
        FsError::NotFound => (StatusCode::NOT_FOUND, "there is no such file"),
        _ => (StatusCode::FORBIDDEN, "this user may not change all of that"),
    })
}

/// Checks the place of a part of a file: dav-server's arithmetic overflows at the end of all numbers.
fn check_part(method: &Method, fields: &HeaderMap) -> Result<(), Refusal> {
    const MALFORMED: Refusal = (StatusCode::BAD_REQUEST, "the range of the part cannot be read");
    let text = |name: &str| fields.get(name).map(|value| value.to_str().map_err(|_| MALFORMED)).transpose();
    let len: Option<u64> = text("content-length")?.and_then(|len| len.parse().ok());
    if let Some(range) = text("content-range")? {
        let range = range.strip_prefix("bytes ").and_then(|range| range.split_once('/')).ok_or(MALFORMED)?.0;
        if range != "*" {
            let (first, last) = range.split_once('-').ok_or(MALFORMED)?;
            check_range(first.parse().map_err(|_| MALFORMED)?, last.parse().map_err(|_| MALFORMED)?, len)?;
        }
    }
    let Some(range) = text("x-update-range")?.filter(|range| *method == Method::PATCH && *range != "append") else {
        return Ok(());
    };
    let (first, last) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')).ok_or(MALFORMED)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| MALFORMED);
    match (first, last) {
        // The last bytes of the file: dav-server compares their number with its length.
        ("", last) => number(last).map(drop),
        (first, "") if len.unwrap_or(0) == 0 => number(first).map(drop),
        (first, "") => check_range(number(first)?, number(first)?.saturating_add(len.unwrap_or(0) - 1), None),
        (first, last) => check_range(number(first)?, number(last)?, len),
    }
}

fn check_range(first: u64, last: u64, len: Option<u64>) -> Result<(), Refusal> {
    if first > last {
        return Err((StatusCode::RANGE_NOT_SATISFIABLE, "the range of the part ends before it begins"));
    }
    if last >= i64::MAX as u64 {
        return Err((StatusCode::PAYLOAD_TOO_LARGE, "the part ends beyond 2^63-1 bytes, where all files end"));
    }
    if len.is_some_and(|len| len != last - first + 1) {
        return Err((StatusCode::RANGE_NOT_SATISFIABLE, "the range of the part is not as long as the body"));
    }
    Ok(())
}

/// Whether another site's page sent a request that changes something: a browser adds the login that it knows.
pub(crate) fn is_cross_site(method: &Method, fields: &HeaderMap) -> bool {
    let is_reading = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let site = fields.get("sec-fetch-site").map(|site| site.as_bytes());
    !is_reading && matches!(site, Some(b"cross-site" | b"same-site"))
}

/// The path of `Destination`, on this server.
fn destination(uri: &Uri, fields: &HeaderMap) -> Result<TreePath, Refusal> {
    const MALFORMED: Refusal = (StatusCode::BAD_REQUEST, "the Destination names no file of this server");
    let destination: Uri =
        fields.get("destination").and_then(|value| value.to_str().ok()?.parse().ok()).ok_or(MALFORMED)?;
    if let Some(authority) = destination.authority() {
        let own = uri.authority().map(|authority| authority.as_str().as_bytes());
        let named =
            [header::HOST.as_str(), "x-forwarded-host"].map(|name| fields.get(name).map(|value| value.as_bytes()));
        let is_own = named.into_iter().chain([own]).flatten();
        if !is_own.into_iter().any(|own| own.eq_ignore_ascii_case(authority.as_str().as_bytes())) {
            return Err((StatusCode::BAD_GATEWAY, "the Destination is on another server"));
        }
    }
    crate::service::path_of(&destination).map_err(|_| MALFORMED)
}
