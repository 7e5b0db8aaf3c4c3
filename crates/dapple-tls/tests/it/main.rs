//! TLS between real sockets.
