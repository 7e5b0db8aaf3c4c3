//! The behavior of a stream.

use std::io::{ErrorKind, IoSlice};
use std::net::Shutdown;
use std::sync::Arc;

use dapple_tls::rustls::{self, CipherSuite, ProtocolVersion, version};
use dapple_tls::{Certificates, TlsAcceptor, TlsConnector};

use super::{pair, pair_of, pattern, run, tls, try_tls};

#[test]
fn what_one_side_writes_the_other_reads() {
    for version in [&version::TLS13, &version::TLS12] {
        run(2, async move {
            let (acceptor, connector) = pair_of(version);
            let (server, client) = tls(&acceptor, &connector, "localhost").await;
            client.write_all(b"ping").await.expect("a write");
            let mut buf = [0; 4];
            server.read_exact(&mut buf).await.expect("a read");
            assert_eq!(&buf, b"ping");
            server.write_all(b"pong").await.expect("a write");
            client.read_exact(&mut buf).await.expect("a read");
            assert_eq!(&buf, b"pong");
        });
    }
}

#[test]
fn a_server_may_speak_first() {
    for version in [&version::TLS13, &version::TLS12] {
        run(1, async move {
            let (acceptor, connector) = pair_of(version);
            let (server, client) = tls(&acceptor, &connector, "localhost").await;
            server.write_all(b"welcome").await.expect("a write");
            let mut buf = [0; 7];
            client.read_exact(&mut buf).await.expect("a read");
            assert_eq!(&buf, b"welcome");
        });
    }
}

#[test]
fn what_was_agreed_on_can_be_asked_for() {
    run(1, async {
        let certificates = Certificates::self_signed(["localhost"]).expect("a certificate");
        let trusted = certificates.first().clone();
        let connector = TlsConnector::with_roots([trusted.clone()]).expect("a client").alpn(["h2", "http/1.1"]);
        let acceptor = TlsAcceptor::with_alpn(certificates, ["http/1.1"]).expect("a server");
        let (server, client) = tls(&acceptor, &connector, "LocalHost").await;
        assert_eq!(server.alpn(), Some(&b"http/1.1"[..]));
        assert_eq!(client.alpn(), Some(&b"http/1.1"[..]));
        assert_eq!(server.server_name().map(str::to_ascii_lowercase).as_deref(), Some("localhost"));
        assert_eq!(client.peer_certificates(), [trusted]);
        assert!(server.peer_certificates().is_empty());
        assert_eq!(server.protocol_version(), ProtocolVersion::TLSv1_3);
        assert!(!server.is_resumed());
        assert_eq!(server.connection().peer_addr().ok(), client.connection().local_addr().ok());
    });
}

#[test]
fn aes_128_is_taken_where_the_processor_has_it_and_the_client_does_not_mind() {
    let certificates = Certificates::self_signed(["localhost"]).expect("a certificate");
    let config = super::client_config(&certificates, &version::TLS13);
    let provider = config.crypto_provider().clone();
    // rustls itself prefers AES-256.
    assert_eq!(provider.cipher_suites[0].suite(), CipherSuite::TLS13_AES_256_GCM_SHA384);
    let has_aes = cfg!(target_arch = "x86_64") && std::fs::read_to_string("/proc/cpuinfo").unwrap().contains(" aes ");
    run(1, async move {
        let acceptor = TlsAcceptor::new(certificates).expect("a server");
        let (server, client) = tls(&acceptor, &TlsConnector::from_config(config), "localhost").await;
        if has_aes {
            assert_eq!(server.cipher_suite().suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
        }

        let mut provider = rustls::crypto::CryptoProvider::clone(&provider);
        provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
        let mut roots = rustls::RootCertStore::empty();
        roots.add(client.peer_certificates()[0].clone()).expect("a certificate");
        let builder = rustls::ClientConfig::builder_with_provider(provider.into());
        let builder = builder.with_protocol_versions(&[&version::TLS13]).expect("a version");
        let phone = TlsConnector::from_config(builder.with_root_certificates(roots).with_no_client_auth());
        let (server, _client) = tls(&acceptor, &phone, "localhost").await;
        assert_eq!(server.cipher_suite().suite(), CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
    });
}

#[test]
fn a_regular_end_reads_as_0_and_the_other_direction_goes_on() {
    for version in [&version::TLS13, &version::TLS12] {
        run(2, async move {
            let (acceptor, connector) = pair_of(version);
            let (server, client) = tls(&acceptor, &connector, "localhost").await;
            client.write_all(b"all I have").await.expect("a write");
            client.shutdown().await.expect("an end");
            assert_eq!(client.write(b"more").await.expect_err("the stream has ended").kind(), ErrorKind::BrokenPipe);
            let mut buf = [0; 100];
            assert_eq!(server.read(&mut buf).await.expect("a read"), 10);
            assert_eq!(server.read(&mut buf).await.expect("an end"), 0);
            assert_eq!(server.read(&mut buf).await.expect("an end"), 0);
            server.write_all(b"my answer").await.expect("a write");
            server.shutdown().await.expect("an end");
            assert_eq!(client.read(&mut buf).await.expect("a read"), 9);
            assert_eq!(client.read(&mut buf).await.expect("an end"), 0);
        });
    }
}

#[test]
fn an_irregular_end_is_seen() {
    run(2, async {
        let (acceptor, connector) = pair();
        let (server, client) = tls(&acceptor, &connector, "localhost").await;
        server.write_all(b"the first half").await.expect("a write");
        server.connection().shutdown(Shutdown::Write).expect("an end");
        let mut buf = [0; 100];
        assert_eq!(client.read(&mut buf).await.expect("a read"), 14);
        for _ in 0..2 {
            assert_eq!(client.read(&mut buf).await.expect_err("cut short").kind(), ErrorKind::UnexpectedEof);
        }
    });
}

#[test]
fn one_task_reads_while_another_writes() {
    run(2, async {
        let (acceptor, connector) = pair();
        let (server, client) = tls(&acceptor, &connector, "localhost").await;
        let sent = Arc::new(pattern(3_000_000));
        let (server, client) = (Arc::new(server), Arc::new(client));
        let tasks = [(server.clone(), client.clone()), (client, server)].map(|(from, to)| {
            let (sending, receiving) = (sent.clone(), sent.clone());
            let writer = dapple_sched::spawn(async move {
                from.write_all(&sending).await.expect("a write");
            });
            let reader = dapple_sched::spawn(async move {
                let mut received = vec![0; receiving.len()];
                to.read_exact(&mut received).await.expect("a read");
                assert!(received == *receiving, "other bytes came than were sent");
            });
            [writer, reader]
        });
        for task in tasks.into_iter().flatten() {
            task.await.expect("no panic");
        }
    });
}

#[test]
fn several_buffers_are_one_write() {
    run(1, async {
        let (acceptor, connector) = pair();
        let (server, client) = tls(&acceptor, &connector, "localhost").await;
        let body = pattern(20_000);
        let bufs = [IoSlice::new(b"head "), IoSlice::new(&[]), IoSlice::new(&body), IoSlice::new(b" tail")];
        let count = server.write_vectored(&bufs).await.expect("a write");
        assert_eq!(count, 20_010);
        server.flush().await.expect("a flush");
        let mut received = vec![0; count];
        client.read_exact(&mut received).await.expect("a read");
        assert!(received.starts_with(b"head ") && received.ends_with(b" tail"));
        assert!(received[5..20_005] == body);
    });
}

#[test]
fn a_server_with_an_untrusted_certificate_is_refused() {
    run(2, async {
        let (acceptor, _) = pair();
        let (_, stranger) = pair();
        let (server, client) = try_tls(&acceptor, &stranger, "localhost").await;
        let client = client.expect_err("not trusted").to_string();
        assert!(client.contains("certificate"), "{client}");
        // The server gets an alert, or finds the connection closed.
        if let Ok(server) = server {
            server.read(&mut [0; 10]).await.expect_err("an alert");
        }

        let (acceptor, connector) = pair();
        let (_server, client) = try_tls(&acceptor, &connector, "other.example").await;
        let client = client.expect_err("another name").to_string();
        assert!(client.contains("certificate"), "{client}");
    });
}
