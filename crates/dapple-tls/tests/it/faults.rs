//! User code that panics, or calls back into the stream: certificate resolvers and wakers.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use dapple_tls::rustls::server::{ClientHello, ResolvesServerCert};
use dapple_tls::rustls::sign::CertifiedKey;
use dapple_tls::rustls::{self, ServerConfig};
use dapple_tls::{TlsAcceptor, TlsConnector, TlsStream};

use super::{LIMIT, pair, run, tls, try_tls};
use crate::bombs::{bomb, counting, drop_bomb};
use crate::clones::on_clone;

type Polled<T> = Pin<Box<dyn Future<Output = T> + Send>>;

fn poll<T>(future: &mut Polled<T>, waker: &Waker) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

/// Writes until the connection takes no more; this waker stays registered.
fn fill(stream: &Arc<TlsStream>, waker: &Waker) -> Polled<std::io::Result<usize>> {
    loop {
        let writer = stream.clone();
        let mut write: Polled<_> = Box::pin(async move { writer.write(&[7; 65_536]).await });
        // The first pending poll may only yield.
        if poll(&mut write, waker).is_pending() && poll(&mut write, waker).is_pending() {
            return write;
        }
    }
}

/// Looks at the stream when it is invoked, and when it is dropped.
struct Looks(Weak<TlsStream>);

impl Looks {
    fn look(&self) {
        if let Some(stream) = self.0.upgrade() {
            let mut flush: Polled<_> = Box::pin(async move { stream.flush().await });
            let _ = poll(&mut flush, Waker::noop());
        }
    }
}

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.look();
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.look();
    }
}

/// Lets the client read everything in the connection, so that a reader finds room to write.
fn make_room(runtime: &dapple_sched::Runtime, server: &Arc<TlsStream>, client: &Arc<TlsStream>, waker: &Waker) {
    let client = client.clone();
    let _reads = runtime.spawn(async move {
        let mut buf = vec![0; 65_536];
        while client.read(&mut buf).await.is_ok_and(|count| count > 0) {}
    });
    // It sends the rest, and wakes the writer.
    let reader = server.clone();
    let mut read: Polled<_> = Box::pin(async move { reader.read(&mut [0; 1]).await });
    let writer = server.clone();
    let mut flush: Polled<_> = Box::pin(async move { writer.flush().await });
    while poll(&mut flush, waker).is_pending() {
        assert!(poll(&mut read, Waker::noop()).is_pending());
        std::thread::yield_now();
    }
}

#[test]
fn wakers_may_come_back_to_the_stream() {
    let (tx, rx) = channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
        let _entered = runtime.enter();
        let (acceptor, connector) = pair();
        let (server, client) = runtime.block_on(tls(&acceptor, &connector, "localhost"));
        let (server, client) = (Arc::new(server), Arc::new(client));
        let looks = Looks(Arc::downgrade(&server));
        let cloned = on_clone(move || looks.look());
        let waker = Waker::from(Arc::new(Looks(Arc::downgrade(&server))));
        drop(fill(&server, &cloned));
        let write = fill(&server, &waker);
        // Another one replaces it.
        drop(waker);
        let waker = Waker::from(Arc::new(Looks(Arc::downgrade(&server))));
        drop((write, fill(&server, &waker)));
        make_room(&runtime, &server, &client, &waker);
        drop(tx);
    });
    let ended = rx.recv_timeout(LIMIT);
    assert!(ended == Err(std::sync::mpsc::RecvTimeoutError::Disconnected), "a lock is held while wakers run");
    thread.join().unwrap();
}

#[test]
fn a_reader_is_served_next_to_a_writer_with_a_waker_that_panics() {
    for bad in [bomb, drop_bomb] {
        let runtime = dapple_io::runtime_builder().workers(1).panic_handler(|_| ()).build().unwrap();
        let _entered = runtime.enter();
        let (acceptor, connector) = pair();
        let (server, client) = runtime.block_on(tls(&acceptor, &connector, "localhost"));
        let (server, client) = (Arc::new(server), Arc::new(client));
        drop(fill(&server, &bad()));
        let (calls, waker) = counting();
        let reader = server.clone();
        let mut read: Polled<_> = Box::pin(async move { reader.read(&mut [0; 4]).await });
        assert!(poll(&mut read, &waker).is_pending());
        make_room(&runtime, &server, &client, Waker::noop());
        let mut read: Polled<_> = Box::pin({
            let reader = server.clone();
            async move { reader.read(&mut [0; 4]).await }
        });
        assert!(poll(&mut read, &waker).is_pending());
        runtime.block_on(client.write_all(b"ping")).unwrap();
        while !matches!(poll(&mut read, &waker), Poll::Ready(Ok(4))) {
            std::thread::yield_now();
        }
        assert!(calls.count() > 0);
    }
}

/// Panics for one name.
#[derive(Debug)]
struct Panics(Arc<CertifiedKey>);

impl ResolvesServerCert for Panics {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        assert_ne!(hello.server_name(), Some("bad.localhost"), "as the test says");
        Some(self.0.clone())
    }
}

/// A server with a resolver that panics for `bad.localhost`, and a client for it.
fn panicking() -> (TlsAcceptor, TlsConnector) {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned(), "bad.localhost".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let private = rustls::pki_types::PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let private = provider.key_provider.load_private_key(private.into()).unwrap();
    let certified = Arc::new(CertifiedKey::new(vec![key.cert.der().clone()], private));
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_cert_resolver(Arc::new(Panics(certified)));
    let connector = TlsConnector::with_roots([key.cert.der().clone()]).unwrap();
    (TlsAcceptor::from_config(config), connector)
}

#[test]
fn a_resolver_that_panics_ends_its_own_handshake_only() {
    run(1, async {
        let (acceptor, connector) = panicking();
        for _ in 0..3 {
            let (server, client) = super::tcp().await;
            let inner = acceptor.clone();
            let handshake = dapple_sched::spawn(async move { inner.accept(server, LIMIT).await.map(drop) });
            assert!(connector.connect("bad.localhost", client, LIMIT).await.is_err());
            assert!(handshake.await.is_err(), "it panics in the task of its connection");
            let (server, client) = try_tls(&acceptor, &connector, "localhost").await;
            assert_eq!(server.unwrap().server_name(), Some("localhost"));
            client.unwrap();
        }
    });
}
