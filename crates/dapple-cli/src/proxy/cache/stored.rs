//! A stored response.

use std::sync::Arc;

use bytes::Bytes;
use dapple_http::cache::{Policy, Selection};
use dapple_http::conditional::{Validators, date};
use http::header::{AGE, DATE, ETAG, LAST_MODIFIED, TRAILER};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::http::SharedHead;

/// A complete response, ready to be sent many times.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) status: StatusCode,
    /// All fields but `Date` and those that change each time.
    pub(crate) head: Arc<SharedHead>,
    /// The origin's `Date`.
    pub(crate) date: Option<HeaderValue>,
    pub(crate) body: Bytes,
    pub(crate) policy: Policy,
    pub(crate) selection: Selection,
    modified_s: Option<u64>,
}

impl Stored {
    pub(crate) fn new(
        status: StatusCode,
        mut headers: HeaderMap,
        body: Bytes,
        policy: Policy,
        selection: Selection,
    ) -> Stored {
        let date_of_origin = headers.remove(DATE);
        // The policy includes its age on arrival.
        headers.remove(AGE);
        // Trailers are not kept.
        headers.remove(TRAILER);
        let modified_s = headers.get(LAST_MODIFIED).and_then(|modified| date(modified.as_bytes()));
        let head = Arc::new(SharedHead::new(headers));
        Stored { status, head, date: date_of_origin, body, policy, selection, modified_s }
    }

    /// All fields.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = self.head.headers.clone();
        if let Some(date) = &self.date {
            headers.insert(DATE, date.clone());
        }
        headers
    }

    /// The validators that distinguish it from other states of the same resource.
    pub(crate) fn validators(&self) -> Validators<'_> {
        let etag = self.head.headers.get(ETAG).map(|etag| etag.as_bytes());
        Validators { etag, modified_s: self.modified_s }
    }

    /// Its approximate size in bytes: fields are there twice, as a map and as lines.
    pub(crate) fn weight(&self) -> u64 {
        let fields = 2 * self.head.lines.len() + FIELD_OVERHEAD * self.head.headers.len();
        self.body.len() as u64 + fields as u64 + self.selection.weight() as u64 + OVERHEAD
    }
}

/// The approximate overhead of a response apart from its body and fields: the slot, the maps.
const OVERHEAD: u64 = 768;
const FIELD_OVERHEAD: usize = 112;
