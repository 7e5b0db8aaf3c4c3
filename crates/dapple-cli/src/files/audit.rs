//! The audit log: a line of JSON for each change.

use std::path::Path;
use std::sync::Arc;

use dapple_files::{Audited, Files, TreePath};
use serde::Serialize;

use super::FilesError;
use crate::observe::log::{Format, Log, Writing};
use crate::observe::time;

/// A line.
#[derive(Serialize)]
struct Record<'a> {
    time: String,
    user: &'a str,
    address: Option<String>,
    call: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    result: String,
}

/// Opens the log and begins to write it; the returned owner keeps it written until dropped.
///
/// # Errors
///
/// The file cannot be opened.
pub(super) fn begin(path: &Path, files: &Files, workers: usize) -> Result<(Arc<Log>, Writing), FilesError> {
    let opened = Log::open_as("audit log", path, Format::Json, workers);
    let (log, writing) = opened.map_err(|error| FilesError::AuditLog(path.to_owned(), error))?;
    let log = Arc::new(log);
    let lines = log.clone();
    files.audit(move |change| lines.put(None, |out| write(change, out)));
    Ok((log, writing))
}

fn write(change: &Audited, out: &mut Vec<u8>) {
    let record = Record {
        time: now(),
        user: &change.user,
        address: change.address.map(|address| address.to_canonical().to_string()),
        call: change.call,
        path: change.path.to_text(),
        to: change.to.as_ref().map(TreePath::to_text),
        result: change.result.to_string(),
    };
    // Writing to memory does not fail.
    if serde_json::to_writer(&mut *out, &record).is_ok() {
        out.push(b'\n');
    }
}

/// The present time, as `2026-11-21T22:57:47.123456Z`.
fn now() -> String {
    let mut text = Vec::new();
    time::rfc_3339(time::now(), &mut text);
    String::from_utf8(text).unwrap_or_default()
}
