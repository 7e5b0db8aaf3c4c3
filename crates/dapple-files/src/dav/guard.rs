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
        "PUT" | "PATCH" => return super::part::check(method, fields),
        _ => Ok(()),
    };
    checked.map_err(|error| match error {
        FsError::NotFound => (StatusCode::NOT_FOUND, "there is no such file"),
        _ => (StatusCode::FORBIDDEN, "this user may not change all of that"),
    })
}

/// Whether another site's page sent a request that changes something: a browser adds the login that it knows.
pub(crate) fn is_cross_site(method: &Method, fields: &HeaderMap) -> bool {
    let is_reading = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let site = fields.get("sec-fetch-site").map(|site| site.as_bytes());
    !is_reading && matches!(site, Some(b"cross-site" | b"same-site"))
}

/// The path of `Destination`, on this server.
pub(crate) fn destination(uri: &Uri, fields: &HeaderMap) -> Result<TreePath, Refusal> {
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
