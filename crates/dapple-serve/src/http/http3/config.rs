//! The QUIC configuration: what an endpoint offers, and the bounds of its connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dapple_tls::Certificates;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{IdleTimeout, ServerConfig, TransportConfig, VarInt};

use crate::http::Limits;

/// The configuration for new connections, with these certificates.
///
/// # Errors
///
/// The system has no random numbers, or QUIC cannot use the certificates.
pub fn server_config(certificates: &Certificates, limits: &Limits) -> io::Result<ServerConfig> {
    let tls = certificates.server_config(["h3"]).map_err(io::Error::other)?;
    let tls = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
    let mut config = ServerConfig::with_crypto(Arc::new(tls));
    config
        .transport_config(Arc::new(transport(limits)))
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size(INCOMING_BUFFER_MAX)
        .incoming_buffer_size_total(INCOMING_BUFFERS_MAX);
    Ok(config)
}

fn transport(limits: &Limits) -> TransportConfig {
    let idle = limits.idle_timeout.min(IDLE_MAX);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_MAX))
        .max_concurrent_uni_streams(VarInt::from_u32(CONTROL_STREAMS_MAX))
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(4 * WINDOW))
        .send_window(SEND_WINDOW)
        .max_idle_timeout(IdleTimeout::try_from(idle).ok())
        // Datagrams belong to another protocol.
        .datagram_receive_buffer_size(None);
    transport
}

/// The most requests of one connection at a time; RFC 9114 asks for at least 100.
const STREAMS_MAX: u32 = 128;

/// A client has three, and may open one of an unknown type to test whether servers ignore it.
const CONTROL_STREAMS_MAX: u32 = 8;

/// How much of a request's body the peer may send before the service reads it.
const WINDOW: u32 = 64 << 10;

/// How much sent data a connection keeps until the peer has acknowledged it.
const SEND_WINDOW: u64 = 1 << 20;

/// The most connections that wait to be accepted, the data that each may have sent, and the data of
/// all.
const INCOMING_MAX: usize = 1024;
const INCOMING_BUFFER_MAX: u64 = 16 << 10;
const INCOMING_BUFFERS_MAX: u64 = 4 << 20;

/// The longest time that a peer may be silent, whatever `--idle-timeout-s` says.
const IDLE_MAX: Duration = Duration::from_secs(30);
