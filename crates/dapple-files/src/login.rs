//! The user that sent a request: by a token, by name and password, or by certificate.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString, rand_core::OsRng};
use argon2::{Argon2, Params};
use dapple::blocking::spawn_blocking;
use dapple::sync::Limit;
use dapple::time::Instant;
use dapple::tls::rustls::pki_types::CertificateDer;
use dapple::tls::{ClientAuthorities, PeerCertificates};
use dapple_sched::environment::HashMap;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use percent_encoding::percent_decode_str;
use subtle::ConstantTimeEq;

use crate::attempts::{Attempts, Origin, client};
use crate::lock::lock;

/// The users of a service, and the guesses of strangers.
#[derive(Debug)]
pub struct Logins(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    token: Option<String>,
    users: Mutex<Arc<Users>>,
    /// So that argon2 need not run at each request.
    known: Mutex<Known>,
    attempts: Mutex<Attempts>,
    checks: Limit,
    certificates: Mutex<ByCertificate>,
}

/// The authorities that certificates of users must be of, and the certificates that were checked lately.
#[derive(Debug, Default)]
struct ByCertificate {
    authorities: Option<ClientAuthorities>,
    known: HashMap<CertificateDer<'static>, (Arc<str>, Instant)>,
}

/// A login that is checked.
struct Checked {
    user: String,
    password: String,
    from: Origin,
}

/// The users of a file, each line `NAME:HASH` with a hash of argon2 as `dapple files passwd` writes it.
#[derive(Clone, Debug, Default)]
pub struct Users(Vec<(Arc<str>, String)>);

/// A request without a valid login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// It has none.
    #[error(
        "log in with a token (Authorization: Bearer, or as the password), with user and password, or with a certificate"
    )]
    Missing,
    /// It is wrong.
    #[error("the token, the user or the password is wrong")]
    Wrong,
    /// The client's certificate is not valid any more, or of no authority that is trusted now, or its name can be no user's.
    #[error("the certificate of this client is not, or no longer, one of a user")]
    Certificate,
    /// Too many wrong ones came for this user, or from its address; the time after which it may try again.
    #[error("too many wrong tokens or passwords; wait {} seconds", .0.as_secs() + 1)]
    TooMany(Duration),
    /// The server checks as many passwords as it can; it may come back soon.
    #[error("the server checks too many passwords at the moment; try again in a second")]
    Busy,
}

/// A user file that cannot be used; the text says why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// It cannot be read or written.
    #[error("the user file {0}: {1}")]
    File(PathBuf, #[source] io::Error),
    /// A line is not `NAME:HASH`.
    #[error("the user file {0}, line {1}: write NAME:HASH, as `dapple files passwd {0} NAME` does")]
    Line(PathBuf, usize),
    /// A name cannot be used.
    #[error(
        "{0:?} cannot be a user's name: it is empty, longer than 64 bytes, or contains a colon or a control character"
    )]
    Name(String),
    /// A password cannot be used.
    #[error("a password has 8 to 1024 bytes")]
    Password,
}

impl Logins {
    /// Lets in each client that has the token, and the users of a list.
    pub fn new(token: Option<String>, users: Users) -> Logins {
        Logins(Arc::new(Shared {
            token,
            users: Mutex::new(Arc::new(users)),
            known: Mutex::default(),
            attempts: Mutex::default(),
            checks: Limit::new(CHECKS_MAX).waiting_max(CHECKS_WAITING_MAX),
            certificates: Mutex::default(),
        }))
    }

    /// Lets in, from now on, also the clients that show a certificate of these authorities, as the user of its [name](PeerCertificates::name); or no
    /// client by its certificate. Certificates that were checked before are checked again.
    pub fn set_authorities(&self, authorities: Option<ClientAuthorities>) {
        *lock(&self.0.certificates) = ByCertificate { authorities, known: HashMap::default() };
    }

    /// Replaces the users. Logins that were checked before are checked again.
    pub fn set_users(&self, users: Users) {
        *lock(&self.0.users) = Arc::new(users);
        lock(&self.0.known).clear();
    }

    /// The name of the user that sent a request, `token` for the bearer of the token. A login in the request goes before the certificate of
    /// its connection.
    ///
    /// # Errors
    ///
    /// The request has no valid login.
    ///
    /// # Cancel safety
    ///
    /// A check that has begun ends, and counts if it fails.
    pub async fn user(
        &self,
        fields: &HeaderMap,
        certificates: Option<&PeerCertificates>,
        address: Option<IpAddr>,
    ) -> Result<Arc<str>, LoginError> {
        let Some(value) = fields.get(AUTHORIZATION) else {
            return self.0.owner(certificates.ok_or(LoginError::Missing)?);
        };
        let value = value.to_str().map_err(|_| LoginError::Wrong)?;
        let shared = &self.0;
        let offered = Offered::of(value);
        let has_token = shared.token.as_ref().is_some_and(|token| is_same(token, offered.secret()));
        let from = Origin { address: address.map(client), name: offered.counted_name(), has_token };
        shared.may_try(&from)?;
        if has_token {
            return Ok(TOKEN_USER.into());
        }
        let (user, password) = match offered {
            Offered::Password(user, password)
                if password.len() <= PASSWORD_LEN_MAX && !lock(&shared.users).is_empty() =>
            {
                (user, password)
            }
            _ => return Err(shared.failed(&from)),
        };
        if let Some(user) = shared.known(&user, &password, &from) {
            return Ok(user);
        }
        let permit = shared.checks.acquire().await.map_err(|_| LoginError::Busy)?;
        // Many came at once, and those before this one have been checked meanwhile.
        shared.may_try(&from)?;
        if let Some(user) = shared.known(&user, &password, &from) {
            return Ok(user);
        }
        let (shared, checked) = (shared.clone(), Checked { user, password, from });
        // The check has its permit, and counts, also if the client leaves.
        let result = spawn_blocking(move || {
            let _permit = permit;
            shared.check(checked)
        });
        result.await.map_err(|_| LoginError::Busy)?
    }
}

impl Shared {
    /// # Errors
    ///
    /// Too many logins of this origin were wrong. This counts before each look-up: otherwise guesses would go on against the logins that
    /// are known.
    fn may_try(&self, from: &Origin) -> Result<(), LoginError> {
        lock(&self.attempts).wait(from, Instant::now()).map_or(Ok(()), |left| Err(LoginError::TooMany(left)))
    }

    /// The user of a login that was checked before.
    fn known(&self, user: &str, password: &str, from: &Origin) -> Option<Arc<str>> {
        let now = Instant::now();
        let found = lock(&self.known)
            .get_key_value(user)
            .filter(|(_, (known, until))| *until > now && is_same(known, password))
            .map(|(user, _)| user.clone())?;
        lock(&self.attempts).succeeded(from.address, &found, now);
        Some(found)
    }

    /// Checks a password. Blocks.
    fn check(&self, checked: Checked) -> Result<Arc<str>, LoginError> {
        let users = lock(&self.users).clone();
        let found = users.find(&checked.user);
        // An unknown user costs as much time as a wrong password, so that time does not tell them apart.
        let hash = found.or(users.0.first()).and_then(|(_, hash)| PasswordHash::new(hash).ok());
        let password = checked.password.as_bytes();
        let is_right = hash.is_some_and(|hash| Argon2::default().verify_password(password, &hash).is_ok());
        match found.filter(|_| is_right) {
            Some(found) => self.found(&checked, found),
            None => Err(self.failed(&checked.from)),
        }
    }

    /// Notes the right password of a user, unless it was taken back during the check.
    fn found(&self, checked: &Checked, (name, hash): &(Arc<str>, String)) -> Result<Arc<str>, LoginError> {
        // New users come before what is known is cleared, so this sees them, or is cleared.
        let mut known = lock(&self.known);
        if lock(&self.users).find(name).is_none_or(|(_, now)| now != hash) {
            return Err(LoginError::Wrong);
        }
        let now = Instant::now();
        known.insert(name.clone(), (checked.password.clone(), now + KNOWN_FOR));
        lock(&self.attempts).succeeded(checked.from.address, name, now);
        Ok(name.clone())
    }

    /// The user who owns a certificate. A connection outlasts a change of authorities, and the time for which its certificate is valid, so
    /// the handshake's check is not enough.
    fn owner(&self, certificates: &PeerCertificates) -> Result<Arc<str>, LoginError> {
        let (now, own) = (Instant::now(), certificates.first().ok_or(LoginError::Missing)?);
        let mut by = lock(&self.certificates);
        if let Some((owner, until)) = by.known.get(own)
            && *until > now
        {
            return Ok(owner.clone());
        }
        let Some(authorities) = by.authorities.clone() else { return Err(LoginError::Missing) };
        authorities.check(certificates).map_err(|_| LoginError::Certificate)?;
        let owner: Arc<str> = certificates.name().ok_or(LoginError::Certificate)?.into();
        check_name(&owner).map_err(|_| LoginError::Certificate)?;
        if by.known.len() >= CERTIFICATES_KNOWN_MAX {
            by.known.clear();
        }
        by.known.insert(own.clone(), (owner.clone(), now + CERTIFICATE_KNOWN_FOR));
        Ok(owner)
    }

    fn failed(&self, from: &Origin) -> LoginError {
        lock(&self.attempts).failed(from, Instant::now());
        LoginError::Wrong
    }
}

/// The password of each user that logged in lately, and until when it is known: no more than there are users.
type Known = HashMap<Arc<str>, (String, Instant)>;

fn is_same(token: &str, offered: &str) -> bool {
    token.as_bytes().ct_eq(offered.as_bytes()).into()
}

/// The login that a request offers.
pub(crate) enum Offered {
    Token(String),
    /// User and password; or any user, and the token as the password.
    Password(String, String),
    Nonsense,
}

impl Offered {
    pub(crate) fn of(value: &str) -> Offered {
        let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
        if scheme.eq_ignore_ascii_case("bearer") {
            return Offered::Token(rest.trim().to_owned());
        }
        let basic = scheme.eq_ignore_ascii_case("basic").then(|| basic(rest.trim())).flatten();
        basic.map_or(Offered::Nonsense, |(user, password)| Offered::Password(user, password))
    }

    /// The part that may be the token.
    pub(crate) fn secret(&self) -> &str {
        match self {
            Offered::Token(secret) | Offered::Password(_, secret) => secret,
            Offered::Nonsense => "",
        }
    }

    /// The name that a wrong login counts for; none that no user can have, so that the table of counts stays small.
    pub(crate) fn counted_name(&self) -> Option<Arc<str>> {
        let Offered::Password(name, _) = self else { return None };
        check_name(name).is_ok().then(|| name.as_str().into())
    }
}

impl Users {
    /// Reads a user file. Blocks.
    ///
    /// # Errors
    ///
    /// It cannot be read, or a line is not `NAME:HASH`.
    pub fn load(file: &Path) -> Result<Users, UsersError> {
        let text = std::fs::read_to_string(file).map_err(|error| UsersError::File(file.to_owned(), error))?;
        Users::parse(&text, file)
    }

    pub(crate) fn parse(text: &str, file: &Path) -> Result<Users, UsersError> {
        let mut users = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) = line.split_once(':').ok_or_else(|| UsersError::Line(file.to_owned(), index + 1))?;
            if check_name(name).is_err() || PasswordHash::new(hash).is_err() {
                return Err(UsersError::Line(file.to_owned(), index + 1));
            }
            users.push((Arc::from(name), hash.to_owned()));
        }
        Ok(Users(users))
    }

    /// Sets the password of a user, new or known, in a file, which appears as a whole. Blocks.
    ///
    /// # Errors
    ///
    /// The name or the password cannot be used; the file cannot be read or written, or has a line of another form.
    pub fn set(file: &Path, name: &str, password: &str) -> Result<(), UsersError> {
        check_name(name)?;
        if !(8..=PASSWORD_LEN_MAX).contains(&password.len()) {
            return Err(UsersError::Password);
        }
        let mut users = match Users::load(file) {
            Err(UsersError::File(_, error)) if error.kind() == io::ErrorKind::NotFound => Users::default(),
            users => users?,
        };
        // REAL: a secret, which no seed may decide.
        let salt = SaltString::generate(&mut OsRng);
        let argon2 = Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, Params::default());
        let hash = argon2.hash_password(password.as_bytes(), &salt).map_err(|_| UsersError::Password)?.to_string();
        users.0.retain(|(other, _)| **other != *name);
        users.0.push((name.into(), hash));
        let mut text = String::new();
        for (name, hash) in &users.0 {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name}:{hash}");
        }
        replace(file, &text).map_err(|error| UsersError::File(file.to_owned(), error))
    }

    fn find(&self, name: &str) -> Option<&(Arc<str>, String)> {
        self.0.iter().find(|(other, _)| **other == *name)
    }

    /// The names with their hashes.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn all(&self) -> &[(Arc<str>, String)] {
        &self.0
    }

    /// The number of users.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Writes a file that only its owner can read, aside and then in its place.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt;
    let mut aside = file.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(aside);
    let written = (|| {
        let mut new = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        std::fs::rename(&aside, file)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&aside);
    }
    written
}

pub(crate) fn check_name(name: &str) -> Result<(), UsersError> {
    let is_bad = name.is_empty() || name.len() > 64 || name.chars().any(|c| c == ':' || c.is_control());
    // The bearer of the token has this name in rules and logs.
    if is_bad || name == TOKEN_USER { Err(UsersError::Name(name.to_owned())) } else { Ok(()) }
}

/// User and password of the scheme Basic.
fn basic(text: &str) -> Option<(String, String)> {
    let decoded = String::from_utf8(base64(text)?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    // Some clients send what they were given in a URL.
    let user = percent_decode_str(user).decode_utf8().ok()?;
    Some((user.into_owned(), password.to_owned()))
}

fn base64(text: &str) -> Option<Vec<u8>> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

/// The name of the token's bearer in rules and logs.
pub const TOKEN_USER: &str = "token";

/// How long a checked login is known.
const KNOWN_FOR: Duration = Duration::from_secs(300);

/// How long a checked certificate is known, and of how many, which may have 64 KB each.
const CERTIFICATE_KNOWN_FOR: Duration = Duration::from_secs(10);
const CERTIFICATES_KNOWN_MAX: usize = 256;

/// The most passwords that are checked at a time, each in 19 MiB of memory, and that wait for it.
const CHECKS_MAX: usize = 4;
const CHECKS_WAITING_MAX: usize = 64;

const PASSWORD_LEN_MAX: usize = 1024;

#[cfg(test)]
mod tests;
