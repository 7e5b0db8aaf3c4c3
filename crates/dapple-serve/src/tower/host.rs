//! Serves the accepted connections of a tower service.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use dapple_io::Connection;
use dapple_io::net::Peer;
#[cfg(feature = "tls")]
use dapple_sync::task::{First, race};
#[cfg(feature = "tls")]
use tracing::debug;

use super::{Arrival, Context, Tower, turn_away};
use crate::connections::{Holder as _, Order};
use crate::host::{AdmittedConnection, EndStage, Host};
use crate::request::Held;
use crate::server::Shared;
use crate::service::HttpService;

/// The host of a tower service's connections.
pub(crate) struct TowerHost<C, V> {
    /// In a mutex, because a service need not be `Sync`.
    pub(crate) service: Mutex<Held<V>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) stage: Arc<EndStage>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<dapple_tls::TlsAcceptor>,
    pub(crate) connection: PhantomData<fn(C)>,
}

impl<C: Connection, V: HttpService> Host for TowerHost<C, V> {
    type Connection = C;

    fn serve(&self, stream: C, peer: Peer, place: AdmittedConnection) {
        let link = place.link().clone();
        // If clients are to leave by themselves, this applies to late clients, too.
        if self.stage.is_finishing() && self.shared.options.leave_timeout.is_zero() {
            link.order(Order::LastReply);
        }
        let context = Context {
            peer,
            #[cfg(feature = "tls")]
            certificates: None,
            arrival: Arrival::new(),
            link: link.clone(),
            shared: self.shared.clone(),
        };
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).another();
        #[cfg(feature = "tls")]
        if let Some(acceptor) = self.tls.clone() {
            let limit = self.shared.options.head_timeout;
            drop(dapple_sched::spawn_balanced(async move {
                match race(link.unwanted(), acceptor.accept(stream, limit)).await {
                    First::Right(Ok(stream)) => {
                        let certificates = dapple_tls::PeerCertificates::new(stream.peer_certificates());
                        Tower::new(service, place, Context { certificates, ..context }).serve(stream).await;
                    }
                    First::Right(Err(error)) => debug!(%error, "a TLS handshake failed"),
                    First::Left(()) => debug!("ended a TLS handshake to make room"),
                }
            }));
            return;
        }
        // Each task has a color of its own, so that all cores serve connections.
        drop(dapple_sched::spawn_balanced(Tower::new(service, place, context).serve(stream)));
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(dapple_sched::spawn(task));
    }

    /// With TLS, refused connections are closed without a reply.
    fn is_plain(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_none();
        #[cfg(not(feature = "tls"))]
        true
    }

    fn farewell(&self, stream: C, words: &'static [u8]) -> impl Future<Output = ()> + Send + 'static {
        turn_away(stream, words, self.shared.on_full.clone())
    }
}
