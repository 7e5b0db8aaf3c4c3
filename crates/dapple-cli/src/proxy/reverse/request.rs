//! Turns a client's request into the request for upstreams.

use dapple_http::{Form, Request};
use http::header::VIA;
use http::header::{HOST, UPGRADE};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use super::failure::Failure;
use super::reverse::Reverse;
use super::upstream::Outgoing;
use crate::http::{Client, Reply, RequestBody};
use crate::proxy::answer;
use crate::proxy::fields;
use crate::proxy::hints::Hints;

/// The result of reading a request's head.
pub(super) enum Turned {
    /// A request for an upstream.
    Outgoing(Outgoing),
    /// A reply by this hop.
    Own(Reply),
}

/// Turns a request into the outgoing one.
///
/// # Errors
///
/// The reason why it cannot be passed on.
pub(super) fn turn(
    reverse: &Reverse,
    request: &Request<'_>,
    body: &RequestBody<'_>,
    client: &Client,
) -> Result<Turned, Failure> {
    if request.form == Form::Authority || request.method == Method::CONNECT {
        return Err(Failure::Unsupported(
            "This is a reverse proxy, which makes no tunnels and does not support \
            CONNECT.",
        ));
    }
    if reverse.via.is_in(request.fields.all(VIA.as_str())) {
        return Err(Failure::Loop);
    }
    let bad_host = Failure::Bad("The host of the request is not well-formed.");
    let host = request.authority.map(Authority::try_from).transpose().map_err(|_| bad_host)?;
    let mut headers = end_to_end(request);
    let own = answer::last_hop(request, &mut headers).map_err(|_| Failure::Bad("Max-Forwards is not a number."))?;
    if let Some(reply) = own {
        return Ok(Turned::Own(reply));
    }
    if request.form == Form::Asterisk {
        return Ok(Turned::Own(answer::options()));
    }
    let target = answer::target(request);
    let target = target.map_err(|_| Failure::Bad("The path of the request is not well-formed."))?;
    reverse.forwarding.apply(&mut headers, client, host.as_ref());
    reverse.via.add_to(&mut headers, request.version);
    Ok(Turned::Outgoing(Outgoing {
        method: request.method.clone(),
        target,
        headers,
        authority: host.filter(|_| !reverse.rewrites_host),
        takes_trailers: takes_trailers(request),
        upgrade: upgrade(request, body),
        hints: Hints::wanted(body.interims()),
    }))
}

/// The fields that do not belong to the client's connection, without `Host`.
fn end_to_end(request: &Request<'_>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(request.fields.len() + 6);
    for field in request.fields.iter() {
        let pair = HeaderName::from_bytes(field.name.as_bytes()).ok().zip(HeaderValue::from_bytes(field.value).ok());
        match pair {
            Some((name, value)) if name != HOST => drop(headers.append(name, value)),
            _ => {}
        }
    }
    fields::strip_but_trailer(&mut headers);
    fields::continue_trace(&mut headers);
    headers
}

/// Whether the client takes fields after the body.
fn takes_trailers(request: &Request<'_>) -> bool {
    let mut words = request.fields.all("te").flat_map(|value| value.split(|byte| *byte == b','));
    let says_so = words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"trailers"));
    says_so && matches!(request.version, Version::HTTP_11 | Version::HTTP_2)
}

/// The protocols that the client would change to (RFC 9110, section 7.8), except HTTP itself:
/// through it requests could bypass the checks here.
fn upgrade(request: &Request<'_>, body: &RequestBody<'_>) -> Option<HeaderValue> {
    let names_upgrade = request
        .fields
        .all("connection")
        .any(|value| value.split(|byte| *byte == b',').any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade")));
    if request.version != Version::HTTP_11 || body.len() != Some(0) || !names_upgrade {
        return None;
    }
    let protocols = request.fields.all(UPGRADE.as_str()).flat_map(|value| value.split(|byte| *byte == b','));
    let protocols = protocols.map(<[u8]>::trim_ascii).filter(|protocol| !protocol.is_empty() && !is_http(protocol));
    let list: Vec<&[u8]> = protocols.collect();
    HeaderValue::from_bytes(&list.join(&b", "[..])).ok().filter(|value| !value.is_empty())
}

fn is_http(protocol: &[u8]) -> bool {
    let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default();
    ["h2c", "h2", "http", "tls"].iter().any(|http| name.eq_ignore_ascii_case(http.as_bytes()))
}
