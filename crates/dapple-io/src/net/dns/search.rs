//! Looking up one name: the names that are tried, and their results.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dapple_sched::Handle;
use dapple_sync::sync::limit::Permit;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

use super::cache::{Answer, Family, Found, Key};
use super::failure::Failure;
use super::{Counters, Loaded, Resolver};
use crate::time::{self, Instant};

/// A look-up in progress.
pub(in crate::net) struct Search {
    resolver: Resolver,
    host: String,
    stage: SearchState,
    /// An error that has not been taken yet.
    error: Option<io::Error>,
}

enum SearchState {
    Loading(Pin<Box<dyn Future<Output = io::Result<Arc<Loaded>>> + Send>>),
    Asking(Asking),
    Over,
}

struct Asking {
    loaded: Arc<Loaded>,
    /// Names left to try.
    names: VecDeque<Name>,
    questions: [Option<Question>; 2],
    has_found: bool,
    /// The most informative reason why there is no address.
    failure: Option<Failure>,
}

type Question = Pin<Box<dyn Future<Output = Answer> + Send>>;

impl Search {
    pub(super) fn new(resolver: Resolver, host: &str) -> Search {
        let loading = {
            let resolver = resolver.clone();
            Box::pin(async move { resolver.loaded().await })
        };
        Search { resolver, host: host.to_owned(), stage: SearchState::Loading(loading), error: None }
    }

    /// Whether addresses of IPv6 may still come.
    pub(in crate::net) fn awaits_ipv6(&self) -> bool {
        match &self.stage {
            SearchState::Loading(_) => true,
            SearchState::Asking(asking) => asking.questions[0].is_some(),
            SearchState::Over => false,
        }
    }

    /// The reason for an empty result.
    pub(in crate::net) fn error(&mut self) -> io::Error {
        self.error.take().unwrap_or_else(crate::net::address::no_address)
    }

    /// The next addresses, or `None` when there are no more.
    pub(in crate::net) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<IpAddr>>> {
        loop {
            match &mut self.stage {
                SearchState::Loading(loading) => match ready!(loading.as_mut().poll(cx)) {
                    Ok(loaded) => self.begin(loaded),
                    Err(error) => self.end(Some(error)),
                },
                SearchState::Asking(asking) => match ready!(asking.poll_more(cx)) {
                    Some(addresses) => return Poll::Ready(Some(addresses)),
                    None if asking.has_found => self.end(None),
                    None => {
                        if let Some(name) = asking.names.pop_front() {
                            asking.questions = ask_both(&self.resolver, &asking.loaded, &name);
                            continue;
                        }
                        let failure = asking.failure.take().unwrap_or(Failure::NoName);
                        let error = failure.error(&self.host, &asking.loaded.servers);
                        self.end(Some(error));
                    }
                },
                SearchState::Over => return Poll::Ready(None),
            }
        }
    }

    fn end(&mut self, error: Option<io::Error>) {
        self.error = error;
        self.stage = SearchState::Over;
    }

    fn begin(&mut self, loaded: Arc<Loaded>) {
        let name = match Name::from_utf8(&self.host) {
            Ok(name) => name,
            Err(error) => {
                let text = format!("`{}` is not a host name: {error}", self.host.escape_debug());
                return self.end(Some(io::Error::new(io::ErrorKind::InvalidInput, text)));
            }
        };
        let from_file = in_hosts_file(&loaded, &name);
        let mut asking =
            Asking { names: VecDeque::new(), questions: [None, None], has_found: false, failure: None, loaded };
        if from_file.is_empty() {
            asking.names = candidates(name, &asking.loaded.settings.search, asking.loaded.settings.ndots);
        } else {
            // As if two queries had been answered.
            let (v6, v4): (Vec<IpAddr>, Vec<IpAddr>) = from_file.into_iter().partition(IpAddr::is_ipv6);
            asking.questions = [v6, v4].map(|addresses| -> Option<Question> {
                (!addresses.is_empty()).then(|| Box::pin(std::future::ready(Ok(addresses.into()))) as Question)
            });
        }
        self.stage = SearchState::Asking(asking);
    }
}

impl Asking {
    /// Addresses from the queries about the current name, or `None` when both have ended.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<IpAddr>>> {
        for place in 0..self.questions.len() {
            let Some(question) = &mut self.questions[place] else { continue };
            let Poll::Ready(answer) = question.as_mut().poll(cx) else { continue };
            self.questions[place] = None;
            match answer {
                Ok(addresses) => {
                    self.has_found = true;
                    return Poll::Ready(Some(addresses.to_vec()));
                }
                Err(failure) => self.note(failure),
            }
        }
        match self.questions.iter().any(Option::is_some) {
            true => Poll::Pending,
            false => Poll::Ready(None),
        }
    }

    /// Keeps the more informative failure: "no server could be reached" or "the name has no
    /// address" says more than "this name does not exist".
    fn note(&mut self, failure: Failure) {
        if failure.ends_search() {
            self.names.clear();
        }
        let rank = |failure: &Failure| match failure {
            Failure::NoName => 0,
            Failure::NoAddress => 1,
            _ => 2,
        };
        if self.failure.as_ref().is_none_or(|kept| rank(kept) < rank(&failure)) {
            self.failure = Some(failure);
        }
    }
}

/// The full names to try, in order.
fn candidates(mut name: Name, search: &[Name], ndots: usize) -> VecDeque<Name> {
    let dots = name.iter().count().saturating_sub(1);
    if name.is_fqdn() {
        return VecDeque::from([name]);
    }
    let mut names: VecDeque<Name> =
        search.iter().filter_map(|domain| name.clone().append_domain(domain).ok()).collect();
    name.set_fqdn(true);
    match dots >= ndots {
        true => names.push_front(name),
        false => names.push_back(name),
    }
    names
}

fn in_hosts_file(loaded: &Loaded, name: &Name) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for record_type in [RecordType::AAAA, RecordType::A] {
        let query = Query::query(name.clone(), record_type);
        if let Some(lookup) = loaded.settings.hosts.lookup_static_host(&query) {
            found.extend(lookup.answers().iter().filter_map(address_in));
        }
    }
    found
}

fn ask_both(resolver: &Resolver, loaded: &Arc<Loaded>, name: &Name) -> [Option<Question>; 2] {
    [Family::V6, Family::V4].map(|family| -> Option<Question> {
        let (resolver, loaded, key) = (resolver.clone(), loaded.clone(), (name.clone(), family));
        Some(Box::pin(async move { answer(&resolver, &loaded, &key).await }))
    })
}

/// Answers a query from the cache, by sharing one in progress, or by asking a server.
async fn answer(resolver: &Resolver, loaded: &Arc<Loaded>, key: &Key) -> Answer {
    let counters = &resolver.0.counters;
    loop {
        let found = resolver.0.cache.lock().begin(key, Instant::now());
        match found {
            Found::Known(answer) => {
                Counters::count(&counters.cache_hits);
                if answer.is_err() {
                    Counters::count(&counters.cache_negative_hits);
                }
                return answer;
            }
            Found::OnItsWay(receiver) => {
                // `None` if the task that should ask has ended.
                if let Some(answer) = receiver.await {
                    Counters::count(&counters.shared);
                    return answer;
                }
            }
            Found::Ask => {
                let asked = Asked { resolver: resolver.clone(), key: key.clone(), answer: None };
                let permit = resolver.permit().await;
                Counters::count(&counters.asked);
                return ask_in_background(asked, loaded.clone(), permit).await;
            }
        }
    }
}

/// Asks in a separate task, so that a caller that gives up does not take the answer away from
/// others.
async fn ask_in_background(mut asked: Asked, loaded: Arc<Loaded>, permit: Permit) -> Answer {
    let (sender, receiver) = crate::oneshot::channel();
    let Some(handle) = Handle::try_current() else { return Err(Failure::ShutDown) };
    let _detached = handle.new_color().spawn_background(async move {
        let question = ask(&loaded, &asked.key);
        let (answer, holds) = match time::timeout(loaded.question_limit(), question).await {
            Ok(answered) => answered,
            Err(_) => (Err(Failure::TimedOut), Duration::ZERO),
        };
        let counters = &asked.resolver.0.counters;
        if answer.as_ref().is_err_and(|failure| !failure.says_no()) {
            Counters::count(&counters.failures);
        }
        asked.answer = Some((answer.clone(), holds));
        // The answer enters the cache before any waiter gets it.
        drop(asked);
        drop(permit);
        sender.send(answer);
    });
    receiver.await.unwrap_or(Err(Failure::ShutDown))
}

/// Asks the servers. Also returns the lifetime of the answer.
async fn ask(loaded: &Loaded, (name, family): &Key) -> (Answer, Duration) {
    let record_type = match family {
        Family::V6 => RecordType::AAAA,
        Family::V4 => RecordType::A,
    };
    match loaded.resolver.lookup(name.clone(), record_type).await {
        Ok(lookup) => {
            let answers = lookup.answers();
            let addresses: Arc<[IpAddr]> = answers.iter().filter_map(address_in).take(ADDRESSES_MAX).collect();
            let ttl = answers.iter().map(|record| record.ttl).min().unwrap_or(0);
            let answer = if addresses.is_empty() { Err(Failure::NoAddress) } else { Ok(addresses) };
            (answer, Duration::from_secs(u64::from(ttl)))
        }
        Err(error) => {
            use hickory_resolver::net::{DnsError, NetError};
            let ttl = match &error {
                NetError::Dns(DnsError::NoRecordsFound(none)) => none.negative_ttl.unwrap_or(0),
                _ => 0,
            };
            (Err(Failure::from_net(&error)), Duration::from_secs(u64::from(ttl)))
        }
    }
}

fn address_in(record: &Record) -> Option<IpAddr> {
    match &record.data {
        RData::A(address) => Some(address.0.into()),
        RData::AAAA(address) => Some(address.0.into()),
        _ => None,
    }
}

/// A query that others may wait for. If dropped, it gives them the answer, or tells them that there
/// is none.
struct Asked {
    resolver: Resolver,
    key: Key,
    answer: Option<(Answer, Duration)>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let config = &self.resolver.0.config;
        let answer = self.answer.take().map(|(answer, holds)| {
            let max = if answer.is_ok() { config.ttl_max } else { config.negative_ttl_max };
            (answer, holds.min(max))
        });
        let kept = answer.as_ref().map(|(answer, holds)| (answer, *holds));
        let waiting = self.resolver.0.cache.lock().finish(&self.key, kept, Instant::now());
        if let Some((answer, _)) = answer {
            waiting.into_iter().for_each(|waiting| waiting.send(answer.clone()));
        }
    }
}

/// The most addresses used of one answer.
const ADDRESSES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_go_through_the_search_list_first() {
        let name = |text: &str| Name::from_utf8(text).unwrap();
        let search = [name("a.test."), name("b.test.")];
        let tried = |text: &str, ndots| -> Vec<String> {
            candidates(name(text), &search, ndots).iter().map(Name::to_string).collect()
        };
        assert_eq!(tried("web", 1), ["web.a.test.", "web.b.test.", "web."]);
        assert_eq!(tried("web.c", 1), ["web.c.", "web.c.a.test.", "web.c.b.test."]);
        assert_eq!(tried("web.c", 2), ["web.c.a.test.", "web.c.b.test.", "web.c."]);
        assert_eq!(tried("web.", 1), ["web."]);
    }
}
