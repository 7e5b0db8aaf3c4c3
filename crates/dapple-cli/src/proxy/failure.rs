//! The reasons why the proxy has no response from an origin.

use std::net::IpAddr;

use http::StatusCode;

use super::rules::Kind;

/// The reason why a request has no response; given to all requests that wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The proxy may not connect to this address.
    Refused(IpAddr, Kind),
    /// `CONNECT` to a port other than those of TLS.
    Port(u16),
    /// There is no such host.
    Unknown(String),
    /// No name server answered in time.
    LookupTimeout,
    /// No server answers there.
    Unreachable(String),
    /// A time limit was exceeded; this is its name.
    TimedOut(&'static str),
    /// The connection ended before there was a response.
    Broken(String),
    /// The response is ambiguous or malformed.
    Framing(&'static str),
    /// The stored response needs the origin's confirmation, and the origin does not answer.
    NeverStale(Box<Failure>),
    /// The limit of connections to origins is reached.
    Busy,
    /// The body of the request ended early.
    Client(String),
    /// The client wants it from the cache only.
    OnlyIfCached,
    /// The request has been here before.
    Loop,
    /// The proxy does not support the request.
    Unsupported(&'static str),
    /// The request makes no sense.
    Bad(&'static str),
}

impl Failure {
    /// The status for this failure.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Failure::Refused(..) | Failure::Port(_) => StatusCode::FORBIDDEN,
            Failure::Unknown(_) | Failure::Unreachable(_) | Failure::Broken(_) | Failure::Framing(_) => {
                StatusCode::BAD_GATEWAY
            }
            Failure::LookupTimeout | Failure::TimedOut(_) | Failure::NeverStale(_) | Failure::OnlyIfCached => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Failure::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Failure::Loop => StatusCode::LOOP_DETECTED,
            Failure::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
            Failure::Bad(_) | Failure::Client(_) => StatusCode::BAD_REQUEST,
        }
    }

    /// The name of this failure in `Proxy-Status` (RFC 9209, section 2.3); `None` if the fault is
    /// the client's.
    pub(crate) fn error_type(&self) -> Option<&'static str> {
        Some(match self {
            Failure::Refused(..) => "destination_ip_prohibited",
            Failure::Port(_) => "http_request_denied",
            Failure::Unknown(_) => "dns_error",
            Failure::LookupTimeout => "dns_timeout",
            Failure::Unreachable(_) => "connection_refused",
            Failure::TimedOut(_) => "http_response_timeout",
            Failure::Broken(_) => "http_response_incomplete",
            Failure::Framing(_) => "http_protocol_error",
            Failure::NeverStale(cause) => return cause.error_type(),
            Failure::Busy => "connection_limit_reached",
            Failure::Loop => "proxy_loop_detected",
            _ => return None,
        })
    }

    /// The text for the client, in one or two sentences.
    pub(crate) fn text(&self) -> String {
        match self {
            Failure::Refused(ip, kind) => format!("This proxy may not reach {ip}: {}.", kind.advice()),
            Failure::Port(port) => format!(
                "CONNECT may not reach port {port}: only 443 and 563 are allowed. `--connect-port {port}` allows it."
            ),
            Failure::Unknown(why) => format!("The host could not be looked up: {why}."),
            Failure::LookupTimeout => "Looking the host up took too long.".to_owned(),
            Failure::Unreachable(why) => format!("The server could not be reached: {why}."),
            Failure::TimedOut(what) => format!("{what} took too long."),
            Failure::Broken(why) => format!("The server ended the connection before its response was complete: {why}."),
            Failure::Framing(why) => format!("The server's response cannot be passed on safely: {why}."),
            Failure::NeverStale(cause) => {
                format!("The stored response may not be used without asking the server. {}", cause.text())
            }
            Failure::Busy => "The proxy has reached its limit of connections to servers. Please try again.".to_owned(),
            Failure::Client(why) => format!("The body of the request ended early: {why}."),
            Failure::OnlyIfCached => "The cache does not have it, and the request allowed only the cache.".to_owned(),
            Failure::Loop => "This request has come through this proxy before.".to_owned(),
            Failure::Unsupported(what) | Failure::Bad(what) => (*what).to_owned(),
        }
    }
}
