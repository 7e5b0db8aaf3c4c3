//! TLS between real sockets. Tests wait for their condition, with a limit that only a bug reaches.

#[path = "../../../dapple-sched/tests/it/bombs.rs"]
mod bombs;
mod certificates;
mod clients;
#[path = "../../../dapple-sched/tests/it/clones.rs"]
mod clones;
mod faults;
#[path = "../../../dapple-sched/tests/it/forget.rs"]
mod forget;
mod hostile;
mod large;
mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod resumption;
mod stream;

use std::future::Future;
use std::time::Duration;

use dapple_io::net::{TcpListener, TcpStream};
use dapple_tls::rustls::{self, ClientConfig, RootCertStore, SupportedProtocolVersion};
use dapple_tls::{Certificates, Result, TlsAcceptor, TlsConnector, TlsStream};

/// Only a bug takes this long.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a future on a new runtime.
fn run<T>(workers: usize, future: impl Future<Output = T>) -> T {
    let runtime = dapple_io::runtime_builder().workers(workers).build().expect("a runtime can be built");
    runtime.block_on(dapple_io::time::timeout(LIMIT, future)).expect("the test hangs")
}

/// A server, and a client that trusts it.
fn pair() -> (TlsAcceptor, TlsConnector) {
    let certificates = Certificates::self_signed(["localhost"]).expect("a certificate can be made");
    let connector = TlsConnector::with_roots([certificates.first().clone()]).expect("a client");
    (TlsAcceptor::new(certificates).expect("a server"), connector)
}

/// A client for one version only, and a server.
fn pair_of(version: &'static SupportedProtocolVersion) -> (TlsAcceptor, TlsConnector) {
    let certificates = Certificates::self_signed(["localhost"]).expect("a certificate can be made");
    let connector = TlsConnector::from_config(client_config(&certificates, version));
    (TlsAcceptor::new(certificates).expect("a server"), connector)
}

fn client_config(trusted: &Certificates, version: &'static SupportedProtocolVersion) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.first().clone()).expect("a certificate");
    let provider = rustls::crypto::aws_lc_rs::default_provider().into();
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]);
    builder.expect("a version").with_root_certificates(roots).with_no_client_auth()
}

/// Two ends of a TCP connection: the server's and the client's.
async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    let client = TcpStream::connect(addr).await.expect("a connection");
    let (server, _peer) = listener.accept().await.expect("a connection");
    (server, client)
}

/// Both ends of an encrypted connection: the server's and the client's.
async fn tls(acceptor: &TlsAcceptor, connector: &TlsConnector, name: &str) -> (TlsStream, TlsStream) {
    let (server, client) = try_tls(acceptor, connector, name).await;
    (server.expect("the server's handshake"), client.expect("the client's handshake"))
}

async fn try_tls(
    acceptor: &TlsAcceptor,
    connector: &TlsConnector,
    name: &str,
) -> (Result<TlsStream>, Result<TlsStream>) {
    let (server, client) = tcp().await;
    let acceptor = acceptor.clone();
    let server = dapple_sched::spawn(async move { acceptor.accept(server, LIMIT).await });
    let client = connector.connect(name, client, LIMIT).await;
    (server.await.expect("no panic"), client)
}

/// Bytes that depend on their position.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}
