//! Certificates from files, their choice, and their replacement.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use dapple_tls::rustls::{self, RootCertStore};
use dapple_tls::{CertificateError, CertificateFiles, Certificates, TlsAcceptor, TlsConnector};

use super::{run, tls};

/// Writes a certificate for these names and its key, and returns the paths.
fn write(folder: &Path, file: &str, names: &[&str]) -> CertificateFiles {
    let made = rcgen::generate_simple_self_signed(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let made = made.expect("a certificate");
    let files = CertificateFiles { chain: folder.join(format!("{file}.pem")), key: folder.join(format!("{file}.key")) };
    std::fs::write(&files.chain, made.cert.pem()).expect("a file");
    std::fs::write(&files.key, made.signing_key.serialize_pem()).expect("a file");
    files
}

/// Trusts all certificates in these files.
fn trusting(files: &[CertificateFiles]) -> TlsConnector {
    let roots = files.iter().map(|files| {
        let certificates = Certificates::load_blocking(std::slice::from_ref(files)).expect("a certificate");
        certificates.first().clone()
    });
    TlsConnector::with_roots(roots).expect("a client")
}

#[test]
fn the_name_chooses_the_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = [
        write(folder.path(), "first", &["first.example"]),
        write(folder.path(), "wildcard", &["*.example.org", "example.org"]),
        write(folder.path(), "exact", &["www.example.org"]),
    ];
    let connector = trusting(&files);
    run(1, async move {
        let certificates = Certificates::load(files.to_vec()).await.expect("certificates");
        let names: Vec<&str> = certificates.names().collect();
        assert_eq!(names, ["first.example", "*.example.org", "example.org", "www.example.org"]);
        assert!(certificates.expires().is_some_and(|expires| expires > SystemTime::now()));
        let of = |index: usize| {
            let certificates = Certificates::load_blocking(&files[index..=index]).expect("a certificate");
            certificates.first().clone()
        };
        let acceptor = TlsAcceptor::new(certificates).expect("a server");
        for (name, index) in [
            ("first.example", 0),
            ("a.example.org", 1),
            ("example.org", 1),
            ("www.example.org", 2),
            ("B.Example.Org", 1),
        ] {
            let (server, client) = tls(&acceptor, &connector, name).await;
            assert_eq!(client.peer_certificates(), [of(index)], "{name}");
            assert_eq!(server.server_name(), Some(&*name.to_ascii_lowercase()));
        }
        // An unknown name gets the first certificate, which the client does not accept.
        let (_, refused) = super::try_tls(&acceptor, &connector, "a.b.example.org").await;
        refused.expect_err("another name");
    });
}

#[test]
fn keys_of_all_forms_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for (kind, made_by) in [
        ("PKCS#8", "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256"),
        ("SEC1", "openssl ecparam -name prime256v1 -genkey -noout"),
        ("PKCS#1", "openssl genrsa -traditional 2048"),
    ] {
        let files = CertificateFiles { chain: folder.path().join("c.pem"), key: folder.path().join("k.pem") };
        let (chain, key) = (files.chain.display(), files.key.display());
        let script = format!("{made_by} > {key} && openssl req -x509 -key {key} -subj /CN=a -days 9 -out {chain}");
        let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
        if !output.status.success() {
            // There is no openssl here, or one without this option.
            eprintln!("{kind} was not tried: {}", String::from_utf8_lossy(&output.stderr));
            continue;
        }
        Certificates::load_blocking(&[files]).unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

#[test]
fn errors_name_the_file_and_say_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = write(folder.path(), "good", &["a.example"]);
    let other = write(folder.path(), "other", &["b.example"]);
    let file = |name: &str, text: &str| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let error = |chain: &Path, key: &Path| {
        let files = CertificateFiles { chain: chain.to_owned(), key: key.to_owned() };
        Certificates::load_blocking(&[files]).expect_err("a bad pair")
    };
    let cases = [
        (error(&good.key, &good.key), "good.key has no certificate", "mixed up"),
        (error(&good.chain, &good.chain), "good.pem has no private key", "mixed up"),
        (error(&good.chain, &other.key), "other.key does not belong to", "good.pem"),
        (error(&folder.path().join("absent"), &good.key), "cannot read", "absent"),
        (error(&file("empty", ""), &good.key), "has no certificate", "empty"),
        (
            error(
                &good.chain,
                &file("locked", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----"),
            ),
            "is encrypted",
            "openssl pkey -in",
        ),
        (error(&file("cut", "-----BEGIN CERTIFICATE-----\nAAAA"), &good.key), "cut is damaged", "copy it again"),
        (
            error(&file("odd", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"), &good.key),
            "odd",
            "copy it again",
        ),
    ];
    for (error, what, advice) in cases {
        let text = error.to_string();
        assert!(text.contains(what) && text.contains(advice), "{text}");
    }
    assert!(matches!(Certificates::load_blocking(&[]), Err(CertificateError::Nothing)));
}

#[test]
fn certificates_are_replaced_under_load_and_no_connection_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = [write(folder.path(), "old", &["localhost"]), write(folder.path(), "new", &["localhost"])];
    run(2, async move {
        let [old, new] = files
            .each_ref()
            .map(|files| Certificates::load_blocking(std::slice::from_ref(files)).expect("a certificate"));
        let mut roots = RootCertStore::empty();
        for certificates in [&old, &new] {
            roots.add(certificates.first().clone()).expect("a certificate");
        }
        let provider = rustls::crypto::aws_lc_rs::default_provider().into();
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        let connector = TlsConnector::from_config(config);

        let acceptor = TlsAcceptor::new(old.clone()).expect("a server");
        let (server, client) = tls(&acceptor, &connector, "localhost").await;
        let (is_over, handshakes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let load: Vec<_> = (0..4)
            .map(|_| {
                let (acceptor, connector) = (acceptor.clone(), connector.clone());
                let (is_over, handshakes) = (is_over.clone(), handshakes.clone());
                dapple_sched::spawn(async move {
                    while !is_over.load(Ordering::Acquire) {
                        let (server, client) = tls(&acceptor, &connector, "localhost").await;
                        server.write_all(b"x").await.expect("a write");
                        client.read_exact(&mut [0]).await.expect("a read");
                        handshakes.fetch_add(1, Ordering::AcqRel);
                    }
                })
            })
            .collect();
        for round in 0..10 {
            let seen = handshakes.load(Ordering::Acquire);
            let next = if round % 2 == 0 { &new } else { &old };
            acceptor.reload(next.clone());
            let (_server, fresh) = tls(&acceptor, &connector, "localhost").await;
            assert_eq!(fresh.peer_certificates(), [next.first().clone()]);
            while handshakes.load(Ordering::Acquire) < seen + 2 {
                dapple_io::time::sleep(Duration::from_millis(1)).await;
            }
        }
        is_over.store(true, Ordering::Release);
        for task in load {
            task.await.expect("no handshake fails");
        }
        // The earlier connection continues, and a failed attempt changes nothing.
        server.write_all(b"still here").await.expect("a write");
        client.read_exact(&mut [0; 10]).await.expect("a read");
        let mixed = CertificateFiles { chain: files[0].chain.clone(), key: files[1].key.clone() };
        Certificates::load(vec![mixed]).await.expect_err("a bad pair");
        let (_server, fresh) = tls(&acceptor, &connector, "localhost").await;
        assert_eq!(fresh.peer_certificates(), [old.first().clone()]);
    });
}
