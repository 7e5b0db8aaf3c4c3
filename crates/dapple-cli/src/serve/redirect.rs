//! The plain port of an encrypted server, which redirects all clients.

use std::net::SocketAddr;
use std::sync::Arc;

use dapple::Color;
use dapple::net::TcpStream;
use dapple_http::{Form, Request};
use http::{Method, StatusCode};

use super::counters::OpenConnection;
use super::reply;
use super::site::Site;
use crate::http::connection::{Protocol, Terms, serve as serve_http};
use crate::http::{Borrowed, Client, Reply, RequestBody, Service};
use crate::server::Link;

/// Serves one connection with redirects only.
pub(crate) async fn serve(
    stream: TcpStream,
    addr: SocketAddr,
    site: Arc<Site>,
    link: Arc<Link>,
    port: u16,
    _open: OpenConnection,
) {
    let client = Client { addr, is_secure: false, color: Color::current().id(), alternative: None };
    let (handle, limits) = (site.handle.clone(), site.limits());
    let service = Arc::new(Redirect { port, site });
    let terms = Terms { limits, handle: Some(&handle), link };
    serve_http(stream, Protocol::FirstBytes, Borrowed::new(service, client), terms, None).await;
}

/// Redirects every request to the same address under `https`.
struct Redirect {
    /// The port of HTTPS.
    port: u16,
    site: Arc<Site>,
}

impl Service for Redirect {
    async fn answer(&self, request: &Request<'_>, _body: &mut RequestBody<'_>, _client: &Client) -> Reply {
        let head = request.method == Method::HEAD;
        let origin = request.authority.filter(|_| request.form != Form::Authority).map(|host| origin(host, self.port));
        let mut reply = match origin {
            Some(origin) if request.form == Form::Asterisk => {
                reply::redirect(StatusCode::PERMANENT_REDIRECT, origin, None, head)
            }
            Some(origin) => {
                let place = format!("{origin}{}", request.path);
                reply::redirect(StatusCode::PERMANENT_REDIRECT, place, request.query, head)
            }
            None => reply::problem(StatusCode::BAD_REQUEST, head),
        };
        reply.close |= self.site.is_crowded();
        reply
    }

    fn refuse(&self, status: StatusCode, _reason: &str, _client: &Client) -> Reply {
        reply::problem(status, false)
    }

    fn is_crowded(&self) -> bool {
        self.site.is_crowded()
    }
}

/// The same host with HTTPS.
fn origin(authority: &str, port: u16) -> String {
    let colon = authority.rfind(':').filter(|colon| !authority[*colon..].contains(']'));
    let host = &authority[..colon.unwrap_or(authority.len())];
    match port {
        443 => format!("https://{host}"),
        port => format!("https://{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::origin;

    #[test]
    fn the_port_is_replaced() {
        assert_eq!(origin("example.com:80", 443), "https://example.com");
        assert_eq!(origin("example.com", 8443), "https://example.com:8443");
        assert_eq!(origin("[::1]:8080", 443), "https://[::1]");
        assert_eq!(origin("[::1]", 8443), "https://[::1]:8443");
    }
}
