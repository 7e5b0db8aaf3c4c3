//! The front: scatters a query over the partitions, gathers their shares until the time limit, and keeps whole answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query as Asked, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use dapple::Colored;
use dapple::stage::operators::gather::{Gather, Gathered, Missing, TooLittle};
use dapple::stage::remote::{Peer, RemoteError, RemoteStage};
use dapple::time::Instant;
use serde::Deserialize;
use tower_service::Service;

use crate::index::{HITS_MAX, Hit, Query, Share};
use crate::{pages, words};

/// The shared part of all requests.
pub(crate) struct Front {
    gather: Gather<String, RemoteStage<Query, Share>>,
    cache: Colored<Cache>,
    cached_for: Duration,
    pub(crate) counts: Counts,
}

/// Whole answers, by the words of their queries, with the end of their time.
type Cache = HashMap<Vec<String>, (Instant, Arc<Answer>)>;

/// The answer to a query.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) hits: Vec<Hit>,
    /// Documents found, and documents searched, in the partitions that answered.
    pub(crate) found: u64,
    pub(crate) documents: u64,
    /// The fraction of the partitions that answered.
    pub(crate) harvest: f64,
    pub(crate) missing: Vec<Missing<String>>,
}

/// The outcomes of all queries since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) whole: AtomicU64,
    pub(crate) partial: AtomicU64,
    pub(crate) cached: AtomicU64,
    /// Queries without an answer, because too little came.
    pub(crate) none: AtomicU64,
    /// The sum of the harvests of all answers, in thousandths.
    pub(crate) harvest_millis: AtomicU64,
}

/// The options of a front.
pub(crate) struct Options {
    pub(crate) parts: Vec<String>,
    pub(crate) limit: Duration,
    pub(crate) harvest_min: f64,
    pub(crate) cached_for: Duration,
}

impl Front {
    pub(crate) fn new(options: Options) -> Result<Front, RemoteError> {
        let mut gather = Gather::new(options.limit).harvest_min(options.harvest_min);
        for part in options.parts {
            // Documents are dealt out evenly, so that all partitions have the same weight.
            let peer = Peer::builder(&part).connect_timeout(CONNECT_TIMEOUT).retry_wait_max(RETRY_WAIT_MAX).build()?;
            let stage = peer.stage("search");
            gather = gather.part(part, 1, stage.timeout(options.limit));
        }
        let (cache, cached_for) = (Colored::new(HashMap::new()), options.cached_for);
        Ok(Front { gather, cache, cached_for, counts: Counts::default() })
    }

    /// Answers with what comes in time, and says whether the answer was kept from an earlier query.
    async fn search(&self, words: Vec<String>) -> Result<(Arc<Answer>, bool), TooLittle> {
        let key = words.clone();
        let kept = self.cache.with(move |cache| {
            let kept = cache.get(&key).filter(|(until, _)| *until > Instant::now());
            kept.map(|(_, answer)| answer.clone())
        });
        if let Some(answer) = kept.await {
            self.counts.cached.fetch_add(1, Relaxed);
            self.counts.harvest_millis.fetch_add(1000, Relaxed);
            return Ok((answer, true));
        }
        let gathered = self.gather.clone().call(Query { words: words.clone() }).await;
        let gathered = gathered.inspect_err(|_| _ = self.counts.none.fetch_add(1, Relaxed))?;
        let answer = Arc::new(Answer::new(gathered));
        let count = if answer.missing.is_empty() { &self.counts.whole } else { &self.counts.partial };
        count.fetch_add(1, Relaxed);
        self.counts.harvest_millis.fetch_add((answer.harvest * 1000.0) as u64, Relaxed);
        // An answer that lacks something must not stay after the partition is back.
        if answer.missing.is_empty() && !self.cached_for.is_zero() {
            let (until, kept) = (Instant::now() + self.cached_for, answer.clone());
            self.cache.post(move |cache| keep(cache, words, until, kept));
        }
        Ok((answer, false))
    }
}

/// Keeps an answer. A full cache loses the answers that are over, or else all.
fn keep(cache: &mut Cache, words: Vec<String>, until: Instant, answer: Arc<Answer>) {
    if cache.len() >= CACHED_MAX {
        let now = Instant::now();
        cache.retain(|_, (until, _)| *until > now);
        if cache.len() >= CACHED_MAX {
            cache.clear();
        }
    }
    cache.insert(words, (until, answer));
}

impl Answer {
    fn new(gathered: Gathered<String, Share>) -> Answer {
        let harvest = gathered.harvest();
        let (mut hits, mut found, mut documents) = (Vec::new(), 0, 0);
        for (_, share) in gathered.answers {
            hits.extend(share.hits);
            found += share.found;
            documents += share.documents;
        }
        hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.title.cmp(&b.title)));
        hits.truncate(HITS_MAX);
        Answer { hits, found, documents, harvest, missing: gathered.missing }
    }
}

/// The parameters of a request.
#[derive(Debug, Default, Deserialize)]
struct Parameters {
    q: Option<String>,
    json: Option<String>,
}

pub(crate) fn router(front: Front) -> Router {
    Router::new()
        .route("/", get(|| async { pages::start() }))
        .route("/search", get(search))
        .route("/status", get(|State(front): State<Arc<Front>>| async move { pages::status(&front.counts) }))
        .fallback(async || pages::problem(StatusCode::NOT_FOUND, "there is no such page", false))
        .with_state(Arc::new(front))
}

async fn search(State(front): State<Arc<Front>>, Asked(asked): Asked<Parameters>) -> Response {
    let (text, wants_json) = (asked.q.unwrap_or_default(), asked.json.is_some());
    let words = words::query(&text);
    if words.is_empty() {
        let error = "the query has no words: /search?q=WORDS";
        return if wants_json { pages::problem(StatusCode::BAD_REQUEST, error, true) } else { pages::start() };
    }
    let begin = Instant::now();
    match front.search(words).await {
        Ok((answer, cached)) => pages::answer(&text, &answer, cached, begin.elapsed(), wants_json),
        Err(error) => pages::problem(StatusCode::SERVICE_UNAVAILABLE, &error.to_string(), wants_json),
    }
}

/// Attempts to reach a host that does not answer end after this time, and the next one begins.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A partition that is back costs harvest for this time at most.
const RETRY_WAIT_MAX: Duration = Duration::from_millis(500);
const CACHED_MAX: usize = 1000;
