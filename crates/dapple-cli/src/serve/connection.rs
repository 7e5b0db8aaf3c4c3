//! One connection: its requests are read, answered and written in its own color.

use std::sync::Arc;

use dapple::Color;
use dapple::net::TcpStream;

use super::counters::OpenConnection;
use super::site::Site;
use crate::http::Client;
use crate::http::http1::{self, End};

/// Serves one connection until either side is done with it, it takes too long, or the server closes.
pub(crate) async fn serve(stream: TcpStream, site: Arc<Site>, _open: OpenConnection) {
    let Ok(addr) = stream.peer_addr() else { return };
    // The color is taken at the start: while a task holds a shard, that is the current one.
    let client = Client { addr, is_secure: false, color: Color::current().id() };
    let (handle, limits) = (site.handle.clone(), site.limits.clone());
    match http1::serve(stream, site, client, limits, &handle).await {
        End::Closed => {}
        End::Http2 { .. } => tracing::debug!("a client speaks HTTP/2, which is not served here"),
    }
}
