//! Turns a request into its reply.

use dapple_http::coding::Accepted;
use dapple_http::{Form, Request};
use http::header::{ALT_SVC, CONTENT_TYPE};
use http::{Method, StatusCode};
use tracing::error;

use super::pages::Content;
use super::path::{PathError, SitePath};
use super::site::Site;
use super::status;
use super::variants::Source;
use super::{reply, representation};
use crate::http::{Awaited, Body, Client, Reply, RequestBody, Service};

impl Service for Site {
    async fn answer(&self, request: &Request<'_>, _body: &mut RequestBody<'_>, client: &Client) -> Reply {
        if self.observing.is_idle() {
            return reply(self, request, client).await;
        }
        // Boxed: this is rarely used, and would make the future of every connection twice as large.
        self.observing.answer(request, client, Box::pin(reply(self, request, client))).await
    }

    fn refuse(&self, status: StatusCode, reason: &str, client: &Client) -> Reply {
        self.observing.refuse(reply::problem(status, false), reason, client)
    }

    fn is_crowded(&self) -> bool {
        Site::is_crowded(self)
    }

    fn timed_out(&self, awaited: Awaited) {
        self.observing.timed_out(awaited);
    }
}

/// The complete reply.
async fn reply(site: &Site, request: &Request<'_>, client: &Client) -> Reply {
    let mut reply = respond(site, request, client).await;
    if reply.shared.is_none() {
        Box::pin(adorn(site, request, &mut reply, client)).await;
    }
    if let Some(alternative) = &client.alternative {
        reply.headers.insert(ALT_SVC, alternative.clone());
    }
    reply.close |= site.is_crowded();
    // A stream counts its own pieces.
    let len = if let Body::Whole(bytes) = &reply.body { bytes.len() } else { 0 };
    site.counters.add_request(len as u64);
    reply
}

async fn respond(site: &Site, request: &Request<'_>, client: &Client) -> Reply {
    let head = request.method == Method::HEAD;
    if request.form == Form::Absolute && request.scheme == Some("https") && !client.is_secure {
        // The client believes that the connection is encrypted (RFC 9110, 7.4).
        return reply::problem(StatusCode::MISDIRECTED_REQUEST, head);
    }
    if !head && request.method != Method::GET {
        return other_method(request);
    }
    if request.path == status::PATH && site.status {
        return reply::json(Box::pin(status::collect(site, client.color)).await, head);
    }
    let path = match SitePath::parse(request.path) {
        Ok(path) => path,
        Err(PathError::Bad) => return reply::problem(StatusCode::BAD_REQUEST, head),
        Err(PathError::Missing) => return reply::problem(StatusCode::NOT_FOUND, head),
    };
    let key = path.key();
    // A variable, so that the rules are not held while the reply is made.
    let redirect = site.library.labels.rules.load().redirect(key);
    if let Some((status, location)) = redirect {
        return reply::redirect(status, location, request.query, head);
    }
    if path.is_hidden() && !site.hidden {
        return reply::problem(StatusCode::NOT_FOUND, head);
    }
    let plain = match site.find(key, client.addr.ip()).await {
        Ok(Content::Page(page)) => Source::Page(page),
        Ok(Content::File(file)) => Source::File(file),
        Ok(Content::Directory) => return reply::with_slash(request.path, request.query, head),
        Ok(Content::Nothing) => return reply::problem(StatusCode::NOT_FOUND, head),
        Ok(Content::Unsteady) => return reply::problem(StatusCode::SERVICE_UNAVAILABLE, head),
        Ok(Content::Busy(refused)) => return reply::refusal(&refused, head),
        Err(error) => {
            error!(%error, path = request.path, "cannot answer a request");
            return reply::problem(StatusCode::INTERNAL_SERVER_ERROR, head);
        }
    };
    let chosen = match plain.meta().negotiable {
        true => {
            let accepted = Accepted::of(request.fields);
            match accepted.any_coding() {
                // Boxed: waiting for a disk or a compressor needs more memory than an idle
                // connection.
                true => Box::pin(site.choose(key, plain, &accepted, client.addr.ip())).await,
                false => accepted.takes_plain().then(|| plain.into()),
            }
        }
        false => Some(plain.into()),
    };
    match chosen {
        Some(representation) => representation::reply(request, &representation, &site.counters),
        None => reply::problem(StatusCode::NOT_ACCEPTABLE, head),
    }
}

/// The reply to a method other than reading.
fn other_method(request: &Request<'_>) -> Reply {
    match request.method {
        Method::OPTIONS => reply::options(),
        Method::POST | Method::PUT | Method::DELETE | Method::PATCH | Method::TRACE | Method::CONNECT => {
            reply::problem(StatusCode::METHOD_NOT_ALLOWED, false)
        }
        _ => reply::problem(StatusCode::NOT_IMPLEMENTED, false),
    }
}

/// Applies the rules for its path and status to a reply that is not a file.
async fn adorn(site: &Site, request: &Request<'_>, reply: &mut Reply, client: &Client) {
    let rules = site.library.labels.rules.load_full();
    if let Some(key) = rules.error_page(reply.status)
        && let Ok(Content::Page(page)) = site.find(key.as_bytes(), client.addr.ip()).await
    {
        reply.headers.insert(CONTENT_TYPE, page.meta.content_type.clone());
        match request.method {
            Method::HEAD => reply.content_len = Some(page.body.len() as u64),
            _ => reply.body = Body::Whole(page.body.clone()),
        }
    }
    if request.form != Form::Asterisk
        && let Ok(path) = SitePath::parse(request.path)
    {
        rules.label(path.key(), &mut reply.headers);
    }
}
