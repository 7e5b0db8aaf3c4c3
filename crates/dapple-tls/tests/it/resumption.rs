//! Resumed sessions.

use std::sync::Arc;

use dapple_tls::rustls::server::NoServerSessionStorage;
use dapple_tls::rustls::{self, ServerConfig, version};
use dapple_tls::{Certificates, TlsAcceptor, TlsConnector, TlsStream};

use super::{client_config, pair_of, run, tls};

/// A word each way: a client of TLS 1.3 gets its ticket after the handshake.
async fn talk(server: &TlsStream, client: &TlsStream) {
    client.write_all(b"?").await.expect("a write");
    server.read_exact(&mut [0]).await.expect("a read");
    server.write_all(b"!").await.expect("a write");
    client.read_exact(&mut [0]).await.expect("a read");
}

#[test]
fn a_client_that_comes_back_resumes_its_session() {
    for version in [&version::TLS13, &version::TLS12] {
        run(1, async move {
            let (acceptor, connector) = pair_of(version);
            for round in 0..3 {
                let (server, client) = tls(&acceptor, &connector, "localhost").await;
                talk(&server, &client).await;
                assert_eq!(server.is_resumed(), round > 0, "{version:?}, round {round}");
                assert_eq!(client.is_resumed(), round > 0, "{version:?}, round {round}");
                assert_eq!(server.server_name(), Some("localhost"));
            }
        });
    }
}

#[test]
fn an_old_client_without_tickets_resumes_from_the_cache() {
    run(1, async {
        let certificates = Certificates::self_signed(["localhost"]).expect("a certificate");
        let mut config = client_config(&certificates, &version::TLS12);
        config.resumption = config.resumption.tls12_resumption(rustls::client::Tls12Resumption::SessionIdOnly);
        let connector = TlsConnector::from_config(config);
        let acceptor = TlsAcceptor::new(certificates).expect("a server");
        for round in 0..2 {
            let (server, client) = tls(&acceptor, &connector, "localhost").await;
            talk(&server, &client).await;
            assert_eq!(server.is_resumed(), round > 0, "round {round}");
        }
    });
}

#[test]
fn sessions_outlive_new_certificates() {
    run(1, async {
        let (acceptor, connector) = pair_of(&version::TLS13);
        let (server, client) = tls(&acceptor, &connector, "localhost").await;
        talk(&server, &client).await;
        acceptor.reload(Certificates::self_signed(["localhost"]).expect("a certificate"));
        let (again, _client) = tls(&acceptor, &connector, "localhost").await;
        assert!(again.is_resumed());
        talk(&server, &client).await;
    });
}

#[test]
fn a_configuration_of_ones_own_is_used() {
    run(1, async {
        let certificates = Certificates::self_signed(["localhost"]).expect("a certificate");
        let connector = TlsConnector::from_config(client_config(&certificates, &version::TLS12));
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let builder = ServerConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into());
        let builder = builder.with_protocol_versions(&[&version::TLS12]).expect("a version").with_no_client_auth();
        let der = rustls::pki_types::PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into());
        let mut config = builder.with_single_cert(vec![key.cert.der().clone()], der).expect("a key");
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let acceptor = TlsAcceptor::from_config(config);
        acceptor.reload(certificates);
        for _ in 0..2 {
            let (server, client) = tls(&acceptor, &connector, "localhost").await;
            talk(&server, &client).await;
            assert!(!server.is_resumed());
        }
    });
}
