//! A request that the cache may have a part in.

use std::sync::Arc;

use dapple_http::Request;
use dapple_http::cache::Control;
use http::header::{HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method};

use super::cache::fetch::Fetch;
use super::cache::fill::{Head, Reader};
use super::cache::shard::Joined;
use super::cache::{Fill, Found, Key, Outcome, Stored};
use super::failure::Failure;
use super::fields;
use super::hints::{self, Hints};
use super::proxy::Proxy;
use super::reply::{self, Note};
use super::tally::Count;
use super::upstream::Outgoing;
use crate::http::clock::unix_ms;
use crate::http::{Body, Interims, Reply, RequestBody};

/// What a request wants of the cache.
pub(crate) struct Wish {
    control: Control,
    /// It has `Authorization`.
    is_authorized: bool,
    /// It wants a part, or has conditions that only the origin can judge.
    is_partial: bool,
}

impl Wish {
    /// `None` where nothing may be kept, and what is kept is not wanted.
    pub(crate) fn of(request: &Request<'_>) -> Option<Wish> {
        let control = Control::of_request(request.fields);
        let has = |name: &str| request.fields.first(name).is_some();
        // These ask about the state of the resource itself (RFC 9111, section 4.3.2).
        let asks_origin = has("if-match") || has("if-unmodified-since");
        (!control.no_store && !asks_origin).then(|| Wish {
            control,
            is_authorized: has("authorization"),
            is_partial: has("range") || request.method == Method::HEAD,
        })
    }

    /// Whether what is on its way for others will do.
    fn may_join(&self) -> bool {
        !self.is_authorized && !self.control.no_cache && self.control.max_age_s != Some(0)
    }
}

impl Proxy {
    /// From the cache, or through it.
    pub(super) async fn through_cache(
        &self,
        request: &Request<'_>,
        body: &mut RequestBody<'_>,
        wish: &Wish,
        uri: &str,
        outgoing: Outgoing,
    ) -> Result<Reply, Failure> {
        let key = self.cache.key(uri);
        let shard = self.cache.shard(&key);
        let (asked, is_authorized, now_ms) = (&wish.control, wish.is_authorized, unix_ms());
        let found = shard.with(|shard| shard.look_up(&key, request.fields, asked, is_authorized, now_ms)).await;
        let (stale, why) = match found {
            Found::Fresh(stored, is_fresh) => {
                self.tally.one(Count::Hits);
                if !is_fresh {
                    self.tally.one(Count::Stale);
                }
                return Ok(reply::of_stored(&stored, request, now_ms, &Note::Hit));
            }
            Found::FreshEnough(stored) => {
                self.tally.one(Count::Hits);
                self.tally.one(Count::Stale);
                let fetch = self.fetch(request, wish, key.clone(), outgoing, Some(stored.clone()));
                self.refresh(fetch).await;
                return Ok(reply::of_stored(&stored, request, now_ms, &Note::Hit));
            }
            Found::Stale(stored) => (Some(stored), "stale"),
            Found::Missing => (None, "uri-miss"),
            Found::OtherVariants => (None, "vary-miss"),
        };
        if wish.control.only_if_cached {
            return Err(Failure::OnlyIfCached);
        }
        if wish.is_partial {
            return self.pass(request, outgoing, body, uri, why).await;
        }
        self.tally.one(Count::Misses);
        self.fetched(request, body.interims(), wish, key, outgoing, stale, why).await
    }

    /// Joins the fetch of another request, or makes one. Interim responses are for the request that makes it.
    #[allow(clippy::too_many_arguments, reason = "all that is known of a request")]
    async fn fetched(
        &self,
        request: &Request<'_>,
        interims: Option<&Interims>,
        wish: &Wish,
        key: Key,
        mut outgoing: Outgoing,
        stale: Option<Arc<Stored>>,
        why: &'static str,
    ) -> Result<Reply, Failure> {
        let hints = Hints::wanted(interims);
        outgoing.hints.clone_from(&hints);
        let fetch = self.fetch(request, wish, key.clone(), outgoing, stale);
        let shard = self.cache.shard(&key);
        let mut is_entered = false;
        if wish.may_join() {
            match shard.with(|shard| shard.join(&key, &fetch.fill)).await {
                Joined::Yours => is_entered = true,
                Joined::Wait(other) => {
                    if let Some(reply) = self.collapsed(request, other.join(), why).await {
                        self.tally.one(Count::Collapsed);
                        return reply;
                    }
                }
            }
        }
        if !is_entered {
            shard.with(|shard| shard.enter(&key, &fetch.fill, false)).await;
        }
        let Some(mut reader) = fetch.fill.join() else { return Err(Failure::Busy) };
        self.upstream.spawn(fetch.run());
        match hints::passed_on(hints.as_deref(), interims, &self.pseudonym, reader.outcome()).await {
            Outcome::Response(head) => Ok(of_head(request, &head, reader, why, false)),
            Outcome::Stored(stored, failure) => Ok(self.of_stored(request, &stored, failure.is_some(), false)),
            Outcome::Failed(failure) => Err(failure),
        }
    }

    /// The reply from another request's fetch; `None` where that does not suit this one.
    async fn collapsed(
        &self,
        request: &Request<'_>,
        reader: Option<Reader>,
        why: &'static str,
    ) -> Option<Result<Reply, Failure>> {
        let mut reader = reader?;
        match reader.outcome().await {
            Outcome::Response(head) => {
                let suits = head.selection.as_ref().is_some_and(|selection| selection.matches(request.fields));
                suits.then(|| Ok(of_head(request, &head, reader, why, true)))
            }
            Outcome::Stored(stored, failure) => {
                let suits = stored.selection.matches(request.fields);
                suits.then(|| Ok(self.of_stored(request, &stored, failure.is_some(), true)))
            }
            Outcome::Failed(failure) => Some(Err(failure)),
        }
    }

    /// Fetches again what has just been sent, unless somebody does already.
    async fn refresh(&self, fetch: Fetch) {
        let joined = self.cache.shard(&fetch.key).with(|shard| shard.join(&fetch.key, &fetch.fill)).await;
        match joined {
            Joined::Yours => self.upstream.spawn(fetch.run()),
            // Dropping it takes nothing out of the shard that it has not put in.
            Joined::Wait(_) => drop(fetch),
        }
    }

    fn of_stored(&self, request: &Request<'_>, stored: &Stored, is_stale: bool, collapsed: bool) -> Reply {
        if is_stale {
            self.tally.one(Count::Stale);
        }
        let note = if is_stale { Note::StandsIn } else { Note::Validated { collapsed } };
        reply::of_stored(stored, request, unix_ms(), &note)
    }

    fn fetch(
        &self,
        request: &Request<'_>,
        wish: &Wish,
        key: Key,
        mut outgoing: Outgoing,
        stale: Option<Arc<Stored>>,
    ) -> Fetch {
        // What is fetched is for all: the whole, whoever caused it.
        outgoing.method = Method::GET;
        for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_RANGE, RANGE] {
            outgoing.headers.remove(name);
        }
        Fetch {
            cache: self.cache.clone(),
            key,
            fill: Arc::new(Fill::default()),
            outgoing,
            request: all_fields(request),
            asked: wish.control,
            stale,
            is_ended: false,
        }
    }
}

/// A response that is on its way.
fn of_head(request: &Request<'_>, head: &Head, reader: Reader, why: &'static str, collapsed: bool) -> Reply {
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

/// The fields as the client sent them: by them it is judged what may be kept, and for whom.
fn all_fields(request: &Request<'_>) -> HeaderMap {
    let pair = |name: &str, value: &[u8]| {
        HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value).ok())
    };
    request.fields.iter().filter_map(|field| pair(field.name, field.value)).fold(
        HeaderMap::new(),
        |mut headers, (name, value)| {
            headers.append(name, value);
            headers
        },
    )
}
