//! Notifications to the service manager (sd_notify(3)). No library is needed for one datagram.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tracing::warn;

/// The service manager, if it expects notifications (`Type=notify` or `Type=notify-reload`).
#[derive(Debug)]
pub struct Manager {
    to: Option<(UnixDatagram, SocketAddr)>,
}

impl Manager {
    /// Finds the service manager through the environment.
    pub fn find() -> Manager {
        let path = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty());
        let to = path.and_then(|path| {
            let addr = match path.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
                _ => SocketAddr::from_pathname(&path),
            };
            match addr.and_then(|addr| Ok((UnixDatagram::unbound()?, addr))) {
                Ok(to) => Some(to),
                Err(error) => {
                    warn!(%error, "NOTIFY_SOCKET is set, but its socket cannot be reached");
                    None
                }
            }
        });
        Manager { to }
    }

    /// Reports that requests are being answered.
    pub fn ready(&self) {
        self.tell(&format!("READY=1\nMAINPID={}", std::process::id()));
    }

    /// Reports that the configuration is being read again; [`Manager::ready`] follows.
    pub fn reloading(&self) {
        // REAL: the service manager compares it with its own.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now_us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}"));
    }

    /// Reports that the service continues in another process.
    pub fn replaced_by(&self, process: u32) {
        self.tell(&format!("MAINPID={process}"));
    }

    /// Reports that this process is about to end.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, news: &str) {
        let Some((socket, addr)) = &self.to else { return };
        if let Err(error) = socket.send_to_addr(news.as_bytes(), addr) {
            warn!(%error, "cannot notify the service manager");
        }
    }
}
