//! The key, the certificate and the token that the service makes at its first start, and keeps.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dapple::tls::{CertificateFiles, Certificates};

use super::error::FilesError;

/// The directory of the state.
pub(super) struct State(PathBuf);

impl State {
    /// Opens the directory of `--state`, or the usual one; makes it, for this user only.
    ///
    /// # Errors
    ///
    /// It cannot be made, or there is no usual one.
    pub(super) fn open(given: Option<&Path>) -> Result<State, FilesError> {
        let dir = match given {
            Some(dir) => dir.to_owned(),
            None => usual().ok_or_else(|| {
                let error = io::Error::new(io::ErrorKind::NotFound, "neither XDG_STATE_HOME nor HOME is set");
                FilesError::State(PathBuf::from("~/.local/state/dapple/files"), error)
            })?,
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(|error| FilesError::State(dir.clone(), error))?;
        Ok(State(dir))
    }

    /// The certificate and its key; makes them for these names if there are none.
    ///
    /// # Errors
    ///
    /// They can be neither read nor made.
    pub(super) fn certificate(&self, names: &[String]) -> Result<CertificateFiles, FilesError> {
        let files = CertificateFiles { chain: self.0.join("certificate.pem"), key: self.0.join("key.pem") };
        if !files.chain.exists() || !files.key.exists() {
            let (chain, key) = Certificates::self_signed_pem(names.iter().map(String::as_str), DAYS)?;
            // The key first: without the certificate both are made again.
            self.write("key.pem", &key)?;
            self.write("certificate.pem", &chain)?;
        }
        Ok(files)
    }

    /// The token; makes one if there is none.
    ///
    /// # Errors
    ///
    /// It can be neither read nor made.
    pub(super) fn token(&self) -> Result<String, FilesError> {
        let path = self.0.join("token");
        match fs::read_to_string(&path) {
            Ok(token) if token.trim().len() >= 16 => Ok(token.trim().to_owned()),
            Ok(_) => {
                let error =
                    io::Error::new(io::ErrorKind::InvalidData, "it holds no token; remove it, and a new one is made");
                Err(FilesError::State(path, error))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let token = random_token().map_err(|error| FilesError::State(path, error))?;
                self.write("token", &format!("{token}\n"))?;
                Ok(token)
            }
            Err(error) => Err(FilesError::State(path, error)),
        }
    }

    /// The directory for the log of changes of a served directory.
    pub(super) fn changes(&self, served: &Path) -> PathBuf {
        let served = fs::canonicalize(served).unwrap_or_else(|_| served.to_owned());
        self.0.join(format!("changes-{:016x}", fnv(served.as_os_str().as_encoded_bytes())))
    }

    /// Writes a file that only this user can read, as a whole.
    fn write(&self, name: &str, text: &str) -> Result<(), FilesError> {
        let (path, aside) = (self.0.join(name), self.0.join(format!("{name}.{}", std::process::id())));
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&aside, &path)
        })();
        written.map_err(|error| FilesError::State(path, error))
    }
}

/// A number for a name, the same in every version (FNV-1a).
fn fnv(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn usual() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    Some(state.join("dapple/files"))
}

/// 128 random bits of the kernel, in hexadecimal digits.
fn random_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// How long the certificate is valid: clients know it by itself, not by its dates.
const DAYS: u32 = 3650;
