//! Requests of others, sent on.

use std::time::UNIX_EPOCH;

use dapple_sched::environment;
use http::header::{CONTENT_LENGTH, EXPECT, HOST};
use http::{HeaderMap, Request, StatusCode};

use super::{Kept, Reception, Via, strip};
use crate::{Body, Client, Error, Response};

/// A client for the requests of others: it leaves out the fields of one connection, adds `Via`, and checks kept responses.
#[derive(Clone, Debug)]
pub struct Relay {
    client: Client,
    via: Via,
}

/// The outcome of a request that was sent on.
#[derive(Debug)]
#[non_exhaustive]
pub enum Relayed {
    /// A new response.
    New(Box<Passed>),
    /// The kept response is good again.
    Confirmed(Kept),
    /// There is no good response, and the kept one may replace it.
    Failed,
}

/// A response to pass on.
#[derive(Debug)]
pub struct Passed {
    /// The status.
    pub status: StatusCode,
    /// The fields to pass on: without those of the connection, and without a `Via` of this proxy.
    pub fields: HeaderMap,
    /// When it came.
    pub reception: Reception,
    /// The response itself, for its body.
    pub response: Response,
}

impl Relay {
    /// Sends by a client, which should follow no redirects.
    #[must_use]
    pub fn new(client: Client, via: Via) -> Relay {
        Relay { client, via }
    }

    /// The name of this proxy.
    #[must_use]
    pub fn via(&self) -> &Via {
        &self.via
    }

    /// Sends a request on; with a kept response, it asks whether that is still good. The target has scheme and host.
    ///
    /// # Cancel safety
    ///
    /// As [`Client::get`].
    ///
    /// # Errors
    ///
    /// As [`Client::request`]; [`Error::Malformed`] for a `304` that is about another response.
    pub async fn send<B: Into<Body>>(&self, mut request: Request<B>, kept: Option<&Kept>) -> Result<Relayed, Error> {
        let (asked, version) = (request.headers().clone(), request.version());
        let fields = request.headers_mut();
        strip(fields);
        for name in [HOST, CONTENT_LENGTH, EXPECT] {
            fields.remove(name);
        }
        kept.into_iter().for_each(|kept| kept.ask(fields));
        self.via.add_to(fields, version);
        let requested_ms = now_ms();
        let response = self.client.request(request).await;
        let reception = Reception { requested_ms, received_ms: now_ms() };
        let is_failure = response.as_ref().map_or(true, |response| response.status().is_server_error());
        if is_failure && kept.is_some_and(|kept| kept.may_replace_error(&asked, reception.received_ms)) {
            return Ok(Relayed::Failed);
        }
        let response = response?;
        let (status, mut fields) = (response.status(), response.headers().clone());
        strip(&mut fields);
        match kept.filter(|_| status == StatusCode::NOT_MODIFIED) {
            Some(kept) => {
                let renewed = kept.renewed(&fields, reception).map(Relayed::Confirmed);
                renewed.ok_or_else(|| Error::Malformed("it confirms another response than the kept one".to_owned()))
            }
            None => Ok(Relayed::New(Box::new(Passed { status, fields, reception, response }))),
        }
    }
}

/// The time as the rules of a cache count it: milliseconds since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    environment::system_now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64)
}
