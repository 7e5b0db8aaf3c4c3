//! The changes that clients make, one record each, for an audit log.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use xml::reader::{EventReader, XmlEvent};

use crate::path::TreePath;

/// A change that a client made, or tried to make.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Audited {
    /// The user.
    pub user: Arc<str>,
    /// The address that the request came from.
    pub address: Option<IpAddr>,
    /// A method of WebDAV, or a call of a mount.
    pub call: &'static str,
    /// The file.
    pub path: TreePath,
    /// The second file of a copy, a move, or a link.
    pub to: Option<TreePath>,
    /// The outcome.
    pub result: Outcome,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It happened.
    Done,
    /// WebDAV's status: refused, or `207` for one of several files, which may have happened in part. Of `PROPPATCH`, that of the property
    /// for which all were refused.
    Status(u16),
    /// The kernel's error, with which a call of a mount failed.
    Failed(i32),
    /// The client left before the end: it may have happened, as a whole.
    Left,
}

type Sink = Box<dyn Fn(&Audited) + Send + Sync>;

/// The receiver of records, once there is one.
#[derive(Clone, Default)]
pub(crate) struct Audit(Arc<OnceLock<Sink>>);

/// The audit of a mount's call, and the address that the call came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct By<'a> {
    pub(crate) audit: &'a Audit,
    pub(crate) address: Option<IpAddr>,
}

/// A change that runs. Dropping it records that the client left.
pub(crate) struct Running {
    audit: Audit,
    record: Option<Audited>,
}

impl Audit {
    pub(crate) fn set(&self, sink: Sink) {
        // The first one stays.
        let _ = self.0.set(sink);
    }

    /// Whether there is a receiver.
    pub(crate) fn is_on(&self) -> bool {
        self.0.get().is_some()
    }

    /// Begins a change, if there is a receiver; the record's outcome comes later.
    pub(crate) fn begin(&self, record: impl FnOnce() -> Option<Audited>) -> Running {
        Running { audit: self.clone(), record: self.0.get().and_then(|_| record()) }
    }
}

impl Running {
    pub(crate) fn end(mut self, result: Outcome) {
        self.record(result);
    }

    /// Ends what was no change.
    pub(crate) fn forget(mut self) {
        self.record = None;
    }

    fn record(&mut self, result: Outcome) {
        if let Some((record, sink)) = self.record.take().zip(self.audit.0.get()) {
            sink(&Audited { result, ..record });
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.record(Outcome::Left);
    }
}

impl Outcome {
    /// Of a reply of WebDAV.
    pub(crate) fn of(status: StatusCode) -> Outcome {
        match status.is_success() && status != StatusCode::MULTI_STATUS {
            true => Outcome::Done,
            false => Outcome::Status(status.as_u16()),
        }
    }

    /// Of a reply to `PROPPATCH`, which has a status for each property: all are set, or none.
    pub(crate) fn of_properties(xml: &[u8]) -> Outcome {
        // The names and values of properties are the client's own.
        let (mut of_client, mut is_status) = (0, false);
        for event in EventReader::new(xml) {
            match event {
                Ok(XmlEvent::StartElement { name, .. }) if of_client > 0 || name.local_name == "prop" => of_client += 1,
                Ok(XmlEvent::EndElement { .. }) if of_client > 0 => of_client -= 1,
                Ok(XmlEvent::StartElement { name, .. }) => is_status = name.local_name == "status",
                Ok(XmlEvent::Characters(text)) if is_status && of_client == 0 => {
                    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
                    match status.and_then(|status| StatusCode::from_u16(status).ok()) {
                        Some(status) if status.is_success() || status == StatusCode::FAILED_DEPENDENCY => {}
                        status => return Outcome::Status(status.unwrap_or(StatusCode::MULTI_STATUS).as_u16()),
                    }
                }
                Ok(_) => {}
                Err(_) => return Outcome::Status(StatusCode::MULTI_STATUS.as_u16()),
            }
        }
        Outcome::Done
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Audit").field(&self.0.get().is_some()).finish()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Done => f.write_str("done"),
            Outcome::Status(status) => write!(f, "refused {status}"),
            Outcome::Failed(errno) => write!(f, "failed {errno}"),
            Outcome::Left => f.write_str("left"),
        }
    }
}
