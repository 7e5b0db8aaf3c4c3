//! Turns a request into its reply.

use dapple_http::{Fields, Request};
use http::{Method, StatusCode};

use super::address::address;
use super::exchange::exchange;
use super::failure::Failure;
use super::request::{Turned, turn};
use super::reverse::Reverse;
use super::upstream::{Answer, Outgoing};
use crate::http::hyper::fields as fields_of;
use crate::http::{Awaited, Body, Client, Reply, RequestBody, Served, Service};
use crate::proxy::fields;
use crate::proxy::hints;
use crate::proxy::lookup::{Looked, Query, Wish};
use crate::proxy::reply::{self, Note};
use crate::proxy::tally::{Count, TallyPermit};
use crate::proxy::tunnel::Tunneling;

impl Service for Reverse {
    async fn answer(&self, request: &Request<'_>, body: &mut RequestBody<'_>, client: &Client) -> Reply {
        if self.observing.is_idle() {
            return self.reply(request, body, client).await;
        }
        self.observing.answer(request, client, self.reply(request, body, client)).await
    }

    fn refuse(&self, status: StatusCode, reason: &str, client: &Client) -> Reply {
        // The upstream is the cause if a started reply ends early.
        let (status, text) = match status {
            StatusCode::INTERNAL_SERVER_ERROR => (StatusCode::BAD_GATEWAY, "The response ended before it began."),
            _ => (status, reason),
        };
        self.observing.refuse(reply::page(status, text, false), reason, client)
    }

    fn is_crowded(&self) -> bool {
        Reverse::is_crowded(self)
    }

    fn timed_out(&self, awaited: Awaited) {
        self.observing.timed_out(awaited);
    }
}

impl Reverse {
    async fn reply(&self, request: &Request<'_>, body: &mut RequestBody<'_>, client: &Client) -> Reply {
        self.tally.one(Count::Requests);
        let mut served = Box::new(Served { upstream: None, head_us: 0, tries: 0 });
        // Boxed: the wait for an upstream is large, and idle connections should stay small.
        let result = Box::pin(self.pass(request, body, client, &mut served)).await;
        let mut reply = result.unwrap_or_else(|failure| {
            self.tally.one(Count::Failed);
            failure.reply(request.method == Method::HEAD)
        });
        reply.served = Some(served);
        reply.close |= self.is_crowded();
        reply
    }

    /// Answers from the cache, or from an upstream.
    async fn pass(
        &self,
        request: &Request<'_>,
        body: &mut RequestBody<'_>,
        client: &Client,
        served: &mut Served,
    ) -> Result<Reply, Failure> {
        let outgoing = match turn(self, request, body, client)? {
            Turned::Outgoing(outgoing) => outgoing,
            Turned::Own(reply) => return Ok(reply),
        };
        let Some(cache) = self.cache.as_ref().filter(|_| outgoing.upgrade.is_none()) else {
            return self.ask(request, &outgoing, body, served).await;
        };
        let address = address(&outgoing, request.authority, client.is_secure);
        let why = match address.as_ref().ok_or("bypass").and_then(|known| Ok((known, Wish::of(request, body)?))) {
            Ok((address, wish)) => {
                let fields = fields_of(&outgoing.headers);
                let (selecting, interims) = (Fields::new(&fields), body.interims());
                let query = Query { request, selecting, wish: &wish, address, interims };
                match cache.look_up(query, &outgoing, served).await? {
                    Looked::Reply(reply) => return Ok(reply),
                    Looked::Pass(why) => why,
                }
            }
            Err(why) => why,
        };
        self.tally.one(Count::Passed);
        let mut reply = self.ask(request, &outgoing, body, served).await?;
        let has_changed = !request.method.is_safe() && (reply.status.is_success() || reply.status.is_redirection());
        if let Some(address) = address.filter(|_| has_changed) {
            cache.changed(&address, &reply.headers);
        }
        Note::Fetched { why, stored: false, collapsed: false }.add_to(&mut reply.headers, None);
        Ok(reply)
    }

    /// Passes the request to an upstream and the response back, and keeps nothing.
    async fn ask(
        &self,
        request: &Request<'_>,
        outgoing: &Outgoing,
        body: &mut RequestBody<'_>,
        served: &mut Served,
    ) -> Result<Reply, Failure> {
        let tunnel = match outgoing.upgrade {
            Some(_) => {
                Some(TallyPermit::take(&self.tally, |tally| &tally.tunnels, self.tunnels_max).ok_or(Failure::Busy)?)
            }
            None => None,
        };
        let interims = body.interims();
        let asking = exchange(&self.upstreams, outgoing, body, served);
        let answer = hints::passed_on(outgoing.hints.as_deref(), interims, &self.via, asking).await?;
        Ok(self.of_answer(request, outgoing, answer, tunnel))
    }

    fn of_answer(
        &self,
        request: &Request<'_>,
        outgoing: &Outgoing,
        answer: Answer,
        tunnel: Option<TallyPermit>,
    ) -> Reply {
        let Answer { version, status, mut headers, content_len, body, is_early, upgraded } = answer;
        self.via.add_to(&mut headers, version);
        if let Some((upgraded, held)) = upgraded
            && let Some(place) = tunnel
        {
            self.tally.one(Count::Tunnels);
            let tunneling = Tunneling {
                server: Box::new(upgraded),
                idle_max: self.common.waits.tunnel,
                tally: self.tally.clone(),
                handle: self.common.handle.clone(),
                places: (place, held),
                observer: None,
            };
            return Reply::new(status, headers, Body::Tunnel(Box::new(tunneling)));
        }
        fields::hide_trailers(&mut headers, request);
        let is_head = outgoing.method == Method::HEAD;
        let mut reply = reply::of_stream(status, headers, body, content_len, is_head);
        reply.close = is_early;
        reply
    }
}
