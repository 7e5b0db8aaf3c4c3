//! Answers a request that may involve a cache.

use std::sync::Arc;

use dapple_http::cache::Control;
use dapple_http::{Fields, Request};
use http::header::{HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method};

use super::cache::fetch::Fetch;
use super::cache::fill::{Head, Reader};
use super::cache::shard::Joined;
use super::cache::source::{Failure, Outgoing, Source};
use super::cache::{Address, Cache, Fill, Found, Key, Outcome, Stored};
use super::fields;
use super::hints::{self, Hints};
use super::reply::{self, Note};
use super::tally::Count;
use crate::http::clock::unix_ms;
use crate::http::{Body, Interims, Reply, RequestBody, Served};

/// The demands of a request on the cache.
pub(crate) struct Wish {
    control: Control,
    /// Whether it has `Authorization`.
    is_authorized: bool,
    /// Whether it wants a part, or has conditions that only the origin can judge.
    is_partial: bool,
}

impl Wish {
    /// An error says why the request bypasses the cache, in the words of `Cache-Status`: its method
    /// cannot be cached; or nothing may be kept, and the client refuses kept responses.
    pub(crate) fn of(request: &Request<'_>, body: &RequestBody<'_>) -> Result<Wish, &'static str> {
        if body.len() != Some(0) || !matches!(request.method, Method::GET | Method::HEAD) {
            return Err("method");
        }
        let control = Control::of_request(request.fields);
        let has = |name: &str| request.fields.first(name).is_some();
        // These fields ask about the state of the resource itself (RFC 9111, section 4.3.2).
        let asks_origin = has("if-match") || has("if-unmodified-since");
        if control.no_store || asks_origin {
            return Err("request");
        }
        Ok(Wish {
            control,
            is_authorized: has("authorization"),
            is_partial: has("range") || request.method == Method::HEAD,
        })
    }

    /// Whether a response in transit for others is acceptable.
    fn may_join(&self) -> bool {
        !self.is_authorized && !self.control.no_cache && self.control.max_age_s != Some(0)
    }
}

/// One request, and everything that decides its response.
#[derive(Clone, Copy)]
pub(crate) struct Query<'q> {
    /// The client's request: its fields decide which part of a response the client gets.
    pub(crate) request: &'q Request<'q>,
    /// The fields by which responses differ, as the server gets them.
    pub(crate) selecting: Fields<'q>,
    pub(crate) wish: &'q Wish,
    pub(crate) address: &'q Address,
    pub(crate) interims: Option<&'q Interims>,
}

/// The outcome of a query.
pub(crate) enum Looked {
    Reply(Reply),
    /// The request needs a server, and its response is not kept; the reason is in the words of
    /// `Cache-Status`.
    Pass(&'static str),
}

impl<S: Source> Cache<S> {
    /// Answers from the cache, or through it. Notes in `served` which server got the request.
    ///
    /// # Errors
    ///
    /// The reason why there is no answer.
    pub(super) async fn look_up(
        self: &Arc<Cache<S>>,
        query: Query<'_>,
        outgoing: &S::Outgoing,
        served: &mut Served,
    ) -> Result<Looked, S::Failure> {
        let key = self.key(query.address);
        let shard = self.shard(&key);
        let Query { request, selecting, wish, .. } = query;
        let (asked, is_authorized, now_ms) = (&wish.control, wish.is_authorized, unix_ms());
        let found = shard.with(|shard| shard.look_up(&key, selecting, asked, is_authorized, now_ms)).await;
        let (stale, why) = match found {
            Found::Fresh(stored, is_fresh) => {
                self.tally.one(Count::Hits);
                if !is_fresh {
                    self.tally.one(Count::Stale);
                }
                return Ok(Looked::Reply(self.of_stored(request, &stored, now_ms, &Note::Hit)));
            }
            Found::FreshEnough(stored) => {
                self.tally.one(Count::Hits);
                self.tally.one(Count::Stale);
                let fetch = self.fetch(query, key.clone(), outgoing, Some(stored.clone()));
                self.refresh(fetch).await;
                return Ok(Looked::Reply(self.of_stored(request, &stored, now_ms, &Note::Hit)));
            }
            Found::Stale(stored) => (Some(stored), "stale"),
            Found::Missing => (None, "uri-miss"),
            Found::OtherVariants => (None, "vary-miss"),
        };
        if wish.control.only_if_cached {
            return Err(S::Failure::ONLY_IF_CACHED);
        }
        if wish.is_partial {
            return Ok(Looked::Pass(why));
        }
        self.tally.one(Count::Misses);
        self.fetched(query, key, outgoing, stale, why, served).await.map(Looked::Reply)
    }

    /// Joins the fetch of another request, or starts one. Interim responses go only to the request
    /// that starts it.
    async fn fetched(
        self: &Arc<Cache<S>>,
        query: Query<'_>,
        key: Key,
        outgoing: &S::Outgoing,
        stale: Option<Arc<Stored>>,
        why: &'static str,
        served: &mut Served,
    ) -> Result<Reply, S::Failure> {
        let hints = Hints::wanted(query.interims);
        let mut fetch = self.fetch(query, key.clone(), outgoing, stale);
        fetch.outgoing.parts().hints.clone_from(&hints);
        let shard = self.shard(&key);
        let mut is_entered = false;
        if query.wish.may_join() {
            match shard.with(|shard| shard.join(&key, &fetch.fill)).await {
                Joined::Yours => is_entered = true,
                Joined::Wait(other) => {
                    if let Some(reply) = self.collapsed(query, other.join(), why).await {
                        self.tally.one(Count::Collapsed);
                        return reply;
                    }
                }
            }
        }
        if !is_entered {
            shard.with(|shard| shard.enter(&key, &fetch.fill, false)).await;
        }
        let fill = fetch.fill.clone();
        // No piece can have been freed before its first reader exists.
        let Some(mut reader) = fill.join() else { return Err(S::Failure::given_up()) };
        self.source.spawn(fetch.run());
        let outcome = hints::passed_on(hints.as_deref(), query.interims, &self.via, reader.outcome()).await;
        if let Some(asked) = fill.take_served() {
            *served = asked;
        }
        match outcome {
            Outcome::Response(head) => Ok(of_head(query.request, &head, reader, why, false)),
            Outcome::Stored(stored, is_stale) => Ok(self.of_checked(query.request, &stored, is_stale, false)),
            Outcome::Own(stored) => Ok(self.of_checked(query.request, &stored, false, false)),
            Outcome::Failed(failure) => Err(failure),
        }
    }

    /// The reply from another request's fetch; `None` if that does not suit this request.
    async fn collapsed(
        &self,
        query: Query<'_>,
        reader: Option<Reader<S::Failure>>,
        why: &'static str,
    ) -> Option<Result<Reply, S::Failure>> {
        let mut reader = reader?;
        match reader.outcome().await {
            Outcome::Response(head) => {
                let suits = head.selection.as_ref().is_some_and(|selection| selection.matches(query.selecting));
                suits.then(|| Ok(of_head(query.request, &head, reader, why, true)))
            }
            Outcome::Stored(stored, is_stale) => {
                let suits = stored.selection.matches(query.selecting);
                suits.then(|| Ok(self.of_checked(query.request, &stored, is_stale, true)))
            }
            Outcome::Own(_) => None,
            Outcome::Failed(failure) => Some(Err(failure)),
        }
    }

    /// Fetches again what was just sent, unless another request's fetch already does.
    async fn refresh(&self, fetch: Fetch<S>) {
        let joined = self.shard(&fetch.key).with(|shard| shard.join(&fetch.key, &fetch.fill)).await;
        match joined {
            Joined::Yours => self.source.spawn(fetch.run()),
            // Dropping the fetch removes nothing from the shard that it has not put there.
            Joined::Wait(_) => drop(fetch),
        }
    }

    fn of_checked(&self, request: &Request<'_>, stored: &Stored, is_stale: bool, collapsed: bool) -> Reply {
        if is_stale {
            self.tally.one(Count::Stale);
        }
        let note = if is_stale { Note::StandsIn } else { Note::Validated { collapsed } };
        self.of_stored(request, stored, unix_ms(), &note)
    }

    fn of_stored(&self, request: &Request<'_>, stored: &Stored, now_ms: u64, note: &Note) -> Reply {
        let reply = reply::of_stored(stored, request, now_ms, note);
        if let Body::Whole(bytes) = &reply.body {
            self.tally.add(Count::BytesToClients, bytes.len() as u64);
        }
        reply
    }

    fn fetch(
        self: &Arc<Cache<S>>,
        query: Query<'_>,
        key: Key,
        outgoing: &S::Outgoing,
        stale: Option<Arc<Stored>>,
    ) -> Fetch<S> {
        // The fetch is for all requests, so it asks for the whole, whichever request caused it.
        let mut outgoing = outgoing.clone();
        let parts = outgoing.parts();
        *parts.method = Method::GET;
        for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_RANGE, RANGE] {
            parts.headers.remove(name);
        }
        *parts.hints = None;
        Fetch {
            cache: self.clone(),
            key,
            fill: Arc::new(Fill::default()),
            outgoing,
            request: all_fields(query.selecting),
            asked: query.wish.control,
            stale,
            is_ended: false,
        }
    }
}

/// The reply for a response in transit.
fn of_head<F: Failure>(
    request: &Request<'_>,
    head: &Head,
    reader: Reader<F>,
    why: &'static str,
    collapsed: bool,
) -> Reply {
    let note = Note::Fetched { why, stored: head.is_kept, collapsed };
    if let Some(reply) = reply::not_modified(request, head.status, &head.headers, &note) {
        return reply;
    }
    let mut headers = head.headers.clone();
    fields::hide_trailers(&mut headers, request);
    note.add_to(&mut headers, None);
    let body = match head.len {
        Some(0) => Body::Empty,
        len => Body::Stream(Box::new(reader.with_len(len))),
    };
    reply::of_stream(head.status, headers, body, None, false)
}

/// The fields as a map. They decide whether a response is kept, and which requests it answers.
fn all_fields(fields: Fields<'_>) -> HeaderMap {
    let pair = |name: &str, value: &[u8]| {
        HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value).ok())
    };
    fields.iter().filter_map(|field| pair(field.name, field.value)).fold(
        HeaderMap::new(),
        |mut headers, (name, value)| {
            headers.append(name, value);
            headers
        },
    )
}
