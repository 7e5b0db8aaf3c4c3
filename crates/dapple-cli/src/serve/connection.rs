//! One connection: reads, answers and writes in its own color.

use std::net::SocketAddr;
use std::sync::Arc;

use dapple::Color;
use dapple::net::TcpStream;
use http::HeaderValue;

use super::counters::OpenConnection;
use super::site::Site;
use crate::http::connection::{Protocol, Terms, serve as serve_http};
use crate::http::{Borrowed, Client};
use crate::server::{Link, Tls};

/// Serves one connection until either side ends it, it takes too long, or the server closes.
pub(crate) async fn serve(
    stream: TcpStream,
    addr: SocketAddr,
    site: Arc<Site>,
    link: Arc<Link>,
    _open: OpenConnection,
) {
    // Taken at the start: while a task holds a shard, the shard's color is the current one.
    let client = Client { addr, is_secure: false, color: Color::current().id(), alternative: None };
    let (handle, limits, color) = (site.handle.clone(), site.limits(), color(&site));
    let terms = Terms { limits, handle: Some(&handle), link };
    serve_http(stream, Protocol::FirstBytes, Borrowed::new(site, client), terms, color).await;
}

/// The same over TLS; tells clients of the `alternative`.
pub(crate) async fn serve_tls(
    stream: TcpStream,
    addr: SocketAddr,
    site: Arc<Site>,
    link: Arc<Link>,
    (tls, alternative): (Arc<Tls>, Option<HeaderValue>),
    _open: OpenConnection,
) {
    let client = Client { addr, is_secure: true, color: Color::current().id(), alternative };
    let handle = site.handle.clone();
    // Boxed: a handshake needs more memory than an idle connection.
    let accepted = Box::pin(tls.accept(stream, Some(&handle), &link)).await;
    site.counters.add_handshake(accepted.is_some());
    let Some(stream) = accepted else { return };
    drop(tls);
    let protocol = if stream.alpn() == Some(b"h2") { Protocol::Http2 } else { Protocol::FirstBytes };
    let (limits, color) = (site.limits(), color(&site));
    let terms = Terms { limits, handle: Some(&handle), link };
    serve_http(stream, protocol, Borrowed::new(site, client), terms, color).await;
}

/// The color of all streams of a connection, unless each has its own.
fn color(site: &Site) -> Option<Color> {
    site.serial.then_some(Color::DEFAULT)
}
