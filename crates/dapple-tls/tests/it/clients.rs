//! Clients that log in with a certificate.

use dapple_tls::rustls::pki_types::PrivateKeyDer;
use dapple_tls::{CertificateError, Certificates, ClientAuthorities, PeerCertificates, TlsAcceptor, TlsConnector};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use tempfile::TempDir;

use super::{run, tls, try_tls};

/// An authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        Authority { pem: params.self_signed(&key).expect("a certificate").pem(), issuer: Issuer::new(params, key) }
    }

    fn signs(&self, name: &str, serial: u64) -> Certificates {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        Certificates::from_der(vec![certificate.der().clone()], key).expect("a pair")
    }

    /// The list that says which serial number is revoked.
    fn revokes(&self, serial: u64) -> String {
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2050, 1, 1),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: SerialNumber::from(serial),
                revocation_time: date_time_ymd(2024, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).expect("a list").pem().expect("text")
    }
}

async fn authorities(folder: &TempDir, text: &str) -> Result<ClientAuthorities, CertificateError> {
    let file = folder.path().join("authorities.pem");
    std::fs::write(&file, text).expect("a file");
    ClientAuthorities::load(file).await
}

#[test]
fn a_client_shows_its_certificate_or_none() {
    let folder = tempfile::tempdir().expect("a folder");
    run(2, async move {
        let (ours, other) = (Authority::new("one"), Authority::new("two"));
        let of_server = Certificates::self_signed(["localhost"]).expect("a certificate");
        let connector = TlsConnector::with_roots([of_server.first().clone()]).expect("a client");
        let trusted = authorities(&folder, &ours.pem).await.expect("authorities");
        let config = of_server.clone().asking_clients(trusted.clone()).tls13_config([]).expect("a configuration");
        let acceptor = TlsAcceptor::from_config(config);

        let (server, _client) = tls(&acceptor, &connector, "localhost").await;
        assert_eq!(PeerCertificates::new(server.peer_certificates()), None);
        let ann = connector.clone().showing(&ours.signs("ann", 1));
        let (server, _client) = tls(&acceptor, &ann, "localhost").await;
        let shown = PeerCertificates::new(server.peer_certificates()).expect("a certificate");
        assert_eq!(shown.name().as_deref(), Some("ann"));
        trusted.check(&shown).expect("it is valid");
        let (refused, _client) =
            try_tls(&acceptor, &connector.clone().showing(&other.signs("ann", 1)), "localhost").await;
        assert!(refused.is_err(), "an authority that is not trusted");

        // Others count from now on, also for a client that could resume its session.
        let trusted = authorities(&folder, &other.pem).await.expect("authorities");
        acceptor.reload_config(of_server.asking_clients(trusted.clone()).tls13_config([]).expect("a configuration"));
        assert!(trusted.check(&shown).is_err());
        assert!(try_tls(&acceptor, &ann, "localhost").await.0.is_err());
    });
}

#[test]
fn a_revoked_certificate_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    run(1, async move {
        let (ours, without_list) = (Authority::new("one"), Authority::new("two"));
        let text = [&ours.pem, &ours.revokes(2), &without_list.pem].map(String::as_str).concat();
        let trusted = authorities(&folder, &text).await.expect("authorities");
        let check = |certificates: Certificates| {
            trusted.check(&PeerCertificates::new(&[certificates.first().clone()]).expect("a certificate"))
        };
        assert!(check(ours.signs("ann", 1)).is_ok());
        let refused = check(ours.signs("bob", 2)).expect_err("it is revoked");
        assert!(refused.to_string().contains("Revoked"), "{refused}");
        assert!(check(without_list.signs("eve", 2)).is_ok());
        for wrong in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(authorities(&folder, wrong).await.is_err(), "{wrong}");
        }
    });
}

#[test]
fn a_certificate_that_any_list_of_its_authority_revokes_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    run(1, async move {
        let ours = Authority::new("one");
        let text = [&ours.pem, &ours.revokes(2), &ours.revokes(3)].map(String::as_str).concat();
        let trusted = authorities(&folder, &text).await.expect("authorities");
        for (name, serial, is_valid) in [("ann", 1, true), ("bob", 2, false), ("eve", 3, false)] {
            let shown = PeerCertificates::new(&[ours.signs(name, serial).first().clone()]).expect("a certificate");
            assert_eq!(trusted.check(&shown).is_ok(), is_valid, "{name}");
        }
    });
}

#[test]
fn the_certificate_of_a_user_is_no_authority() {
    let folder = tempfile::tempdir().expect("a folder");
    run(1, async move {
        let ours = Authority::new("one");
        for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa] {
            let mut params = CertificateParams::default();
            params.is_ca = is_ca;
            let user = params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").pem();
            let refused = authorities(&folder, &[ours.pem.as_str(), &user].concat()).await;
            assert!(
                matches!(refused, Err(CertificateError::NoAuthority { .. })),
                "ann could sign for bob: {refused:?}"
            );
        }
    });
}
