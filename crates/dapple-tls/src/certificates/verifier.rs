//! Checks certificates of clients against all lists of revoked ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertRevocationListError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use webpki::{CertRevocationList, EndEntityCert, KeyUsage, OwnedCertRevocationList};

use super::der;
use crate::provider::provider;

/// A list of revoked certificates.
type Revoked = CertificateRevocationListDer<'static>;

/// Checks signatures, times, purposes and, for authorities with a list, whether a certificate is revoked. Clients may show none.
pub(super) fn of(
    roots: RootCertStore,
    lists: Vec<Revoked>,
) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
    let roots = Arc::new(roots);
    let of = |lists: Vec<Revoked>| {
        WebPkiClientVerifier::builder_with_provider(roots.clone(), provider())
            .with_crls(lists)
            .allow_unknown_revocation_status()
            .allow_unauthenticated()
            .build()
    };
    let mut rounds = rounds(lists)?.into_iter();
    let first = of(rounds.next().unwrap_or_default())?;
    let others = rounds.map(of).collect::<Result<Vec<_>, _>>()?;
    Ok(if others.is_empty() { first } else { Arc::new(Every { first, others }) })
}

/// Whether a certificate says that its owner may sign others; rustls takes any for a root's. One that does is refused as a client's own.
pub(super) fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    let Some(end) = der::facts(certificate).and_then(|facts| facts.expires?.duration_since(UNIX_EPOCH).ok()) else {
        return false;
    };
    let as_own = EndEntityCert::try_from(certificate).and_then(|own| {
        // At its end, since webpki looks at the time first.
        own.verify_for_usage(&[], &[], &[], UnixTime::since_unix_epoch(end), KeyUsage::client_auth(), None, None)?;
        Ok(())
    });
    matches!(as_own, Err(webpki::Error::CaUsedAsEndEntity))
}

/// The first list of each authority, then the second of those that have another one, and so on.
fn rounds(lists: Vec<Revoked>) -> Result<Vec<Vec<Revoked>>, VerifierBuilderError> {
    let (mut rounds, mut counts) = (Vec::<Vec<_>>::new(), BTreeMap::new());
    for list in lists {
        let read = OwnedCertRevocationList::from_der(&list).map_err(|_| CertRevocationListError::ParseError)?;
        let count: &mut usize = counts.entry(CertRevocationList::from(read).issuer().to_vec()).or_default();
        if *count == rounds.len() {
            rounds.push(Vec::new());
        }
        rounds[*count].push(list);
        *count += 1;
    }
    Ok(rounds)
}

/// Verifiers that must all agree, each with one list of an authority: webpki looks into the first that it finds, so a newer one after it would
/// count for nothing. They differ in nothing else.
#[derive(Debug)]
struct Every {
    first: Arc<dyn ClientCertVerifier>,
    others: Vec<Arc<dyn ClientCertVerifier>>,
}

impl ClientCertVerifier for Every {
    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.first.verify_client_cert(own, others, now)?;
        self.others.iter().try_fold(verified, |_, verifier| verifier.verify_client_cert(own, others, now))
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.first.root_hint_subjects()
    }

    fn offer_client_auth(&self) -> bool {
        self.first.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.first.client_auth_mandatory()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.first.verify_tls12_signature(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.first.verify_tls13_signature(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.first.supported_verify_schemes()
    }
}
