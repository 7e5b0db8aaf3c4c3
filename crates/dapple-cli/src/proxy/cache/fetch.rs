//! Asks a server on behalf of all requests that wait for the response.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use dapple_http::Fields;
use dapple_http::cache::{Control, Policy, Reception, Selection, is_about, merged};
use http::header::{AGE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use http::{HeaderMap, StatusCode};
use tracing::debug;

use super::fill::Head;
use super::source::{Answer, Failure, Outgoing, Source};
use super::{Cache, Fill, Key, Outcome, Stored};
use crate::http::Served;
use crate::http::clock::unix_ms;
use crate::http::hyper::fields;
use crate::proxy::tally::Count;

/// One request to an origin, in a task of its own: the others wait for it even if the client that
/// asked first leaves. The shard and the readers always learn how it ended.
pub(crate) struct Fetch<S: Source> {
    pub(crate) cache: Arc<Cache<S>>,
    pub(crate) key: Key,
    pub(crate) fill: Arc<Fill<S::Failure>>,
    /// The request to the origin, without anything that would make the response partial or
    /// conditional.
    pub(crate) outgoing: S::Outgoing,
    /// The fields of the request that decide whether the response is kept, and which requests it
    /// answers.
    pub(crate) request: HeaderMap,
    pub(crate) asked: Control,
    /// The response to validate.
    pub(crate) stale: Option<Arc<Stored>>,
    pub(crate) is_ended: bool,
}

impl<S: Source> Fetch<S> {
    /// Fetches, delivers the response, and keeps it if that is allowed.
    pub(crate) async fn run(mut self) {
        let requested_ms = unix_ms();
        let mut served = Served { upstream: None, head_us: 0, tries: 0 };
        let mut answer = self.ask(self.stale.clone(), &mut served).await;
        if let Some(stale) = self.stale.clone()
            && let Ok(not_modified) = &answer
            && not_modified.status == StatusCode::NOT_MODIFIED
        {
            if is_about(&stale.headers(), &not_modified.headers) {
                let reception = Reception { requested_ms, received_ms: unix_ms() };
                self.fill.set_served(served);
                return self.revalidated(&stale, not_modified.headers.clone(), reception).await;
            }
            // The response is about another state than the stored one.
            answer = self.ask(None, &mut served).await;
        }
        self.fill.set_served(served);
        let is_failed = answer.as_ref().map_or(true, |answer| REPLACED.contains(&answer.status.as_u16()));
        if let Some(stale) = self.stale.clone().filter(|_| is_failed) {
            if stale.policy.may_replace_error(&self.asked, unix_ms()) {
                return self.end(Outcome::Stored(stale, true), None).await;
            }
            if stale.policy.is_never_stale() {
                answer = answer.map_err(Failure::never_stale);
            }
        }
        match answer {
            Ok(answer) => self.take(answer, requested_ms).await,
            Err(failure) => self.end(Outcome::Failed(failure), None).await,
        }
    }

    /// Sends the request; with `known`, asks only for a newer state.
    async fn ask(&self, known: Option<Arc<Stored>>, served: &mut Served) -> Result<Answer, S::Failure> {
        let mut outgoing = self.outgoing.clone();
        if let Some(known) = known {
            let stored = &known.head.headers;
            for (of_response, of_request) in [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)] {
                if let Some(value) = stored.get(of_response) {
                    outgoing.parts().headers.insert(of_request, value.clone());
                }
            }
        }
        self.cache.source.ask(&outgoing, served).await
    }

    /// Handles an origin's confirmation that the stored response is still valid (RFC 9111, section
    /// 4.3.4).
    async fn revalidated(mut self, stale: &Arc<Stored>, mut not_modified: HeaderMap, reception: Reception) {
        self.cache.tally.one(Count::Revalidated);
        let mut known = stale.headers();
        // The age at that time no longer matters.
        known.remove(AGE);
        self.cache.via.add_to(&mut not_modified, http::Version::HTTP_11);
        let headers = merged(&known, &not_modified);
        let list = fields(&self.request);
        let fields = Fields::new(&list);
        let policy = Policy::of(fields, &self.asked, stale.status, &headers, S::TARGETS, reception);
        let (kept, outcome) = match with_selection(policy, &headers, fields) {
            Some((policy, selection)) => {
                let stored = Arc::new(Stored::new(stale.status, headers, stale.body.clone(), policy, selection));
                (Some(stored.clone()), Outcome::Stored(stored, false))
            }
            None => {
                let (key, wrong) = (self.key.clone(), stale.clone());
                self.cache.shard(&self.key).with(|shard| shard.forget(&key, &wrong)).await;
                let updated =
                    Stored::new(stale.status, headers, stale.body.clone(), stale.policy, stale.selection.clone());
                (None, Outcome::Own(Arc::new(updated)))
            }
        };
        self.end(outcome, kept).await;
    }

    /// Takes a response, piece by piece.
    async fn take(mut self, mut answer: Answer, requested_ms: u64) {
        let reception = Reception { requested_ms, received_ms: unix_ms() };
        let list = fields(&self.request);
        let policy = Policy::of(Fields::new(&list), &self.asked, answer.status, &answer.headers, S::TARGETS, reception);
        let keep = with_selection(policy, &answer.headers, Fields::new(&list));
        drop(list);
        let len = answer.body.len();
        let mut keep = keep.filter(|_| len.is_none_or(|len| len <= self.cache.object_max));
        self.cache.via.add_to(&mut answer.headers, answer.version);
        let head = Head {
            status: answer.status,
            headers: answer.headers.clone(),
            len,
            selection: keep.as_ref().map(|(_, selection)| selection.clone()),
            is_kept: keep.is_some(),
        };
        if keep.is_none() {
            // From here on no request joins, before any reader learns of the end.
            self.leave(None).await;
        }
        let head = Outcome::Response(Arc::new(head));
        if len != Some(0) {
            self.fill.decide(head.clone());
        }

        // When a client has read the whole response, the response must be in the cache, and the
        // client's connection free for the next request: so the fetch holds back the last piece
        // until that is done. If the length is unknown, readers wait for the end.
        let (mut left, mut last) = (len, None);
        let mut taken = BytesMut::new();
        let is_complete = loop {
            match answer.body.next().await {
                None => break true,
                Some(Err(error)) => {
                    debug!(%error, uri = %self.key.uri.escape_ascii(), "a response ended early");
                    break false;
                }
                Some(Ok(piece)) => {
                    if keep.is_some() && (taken.len() + piece.len()) as u64 > self.cache.object_max {
                        (keep, taken) = (None, BytesMut::new());
                        self.leave(None).await;
                        self.fill.give_up_keeping();
                    }
                    if keep.is_some() {
                        taken.extend_from_slice(&piece);
                    }
                    left = left.map(|left| left.saturating_sub(piece.len() as u64));
                    if left == Some(0) {
                        last = Some(piece);
                    } else if !self.fill.push(piece).await {
                        break false;
                    }
                }
            }
        };
        // An exact allocation.
        let body = Bytes::copy_from_slice(&taken);
        let stored = keep
            .filter(|_| is_complete)
            .map(|(policy, selection)| Arc::new(Stored::new(answer.status, answer.headers, body, policy, selection)));
        self.leave(stored).await;
        self.fill.decide(head);
        if let Some(last) = last {
            self.fill.push(last).await;
        }
        self.fill.set_trailers(answer.body.trailers());
        self.fill.end(is_complete);
    }

    /// Tells all readers, after the shard knows.
    async fn end(&mut self, outcome: Outcome<S::Failure>, stored: Option<Arc<Stored>>) {
        self.leave(stored).await;
        self.fill.decide(outcome);
        self.fill.end(true);
    }

    /// Removes this fetch from the shard, which keeps the stored response.
    async fn leave(&mut self, stored: Option<Arc<Stored>>) {
        if !std::mem::replace(&mut self.is_ended, true) {
            let (key, fill) = (&self.key, &self.fill);
            self.cache.shard(key).with(|shard| shard.end(key, fill, stored)).await;
        }
    }
}

impl<S: Source> Drop for Fetch<S> {
    fn drop(&mut self) {
        if !self.is_ended {
            let (key, fill) = (self.key.clone(), self.fill.clone());
            self.cache.shard(&self.key).post(move |shard| shard.end(&key, &fill, None));
        }
        // Has no effect if the fetch has already reported success.
        self.fill.decide(Outcome::Failed(Failure::given_up()));
        self.fill.end(false);
    }
}

/// A policy together with the requests that the response answers.
fn with_selection(policy: Option<Policy>, headers: &HeaderMap, request: Fields<'_>) -> Option<(Policy, Selection)> {
    let (policy, selection) = policy.zip(Selection::of(headers, request))?;
    let selection = if policy.is_guess() { selection.with_cookies(request) } else { selection };
    Some((policy, selection))
}

/// Errors that a stale response may replace (RFC 5861, section 4).
const REPLACED: [u16; 4] = [500, 502, 503, 504];
