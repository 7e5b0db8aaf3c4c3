//! URLs of stores.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[cfg(feature = "etcd")]
use dapple_etcd::EtcdUrl;

#[cfg(feature = "etcd")]
use crate::Etcd;
#[cfg(feature = "fjall")]
use crate::Fjall;
use crate::Redb;
use crate::engine::{AnyEngine, Engine, Failure, Place};

/// The engine and the place of a store, as a text: `redb:DIR`, with the feature `fjall` also `fjall:DIR`, and with `etcd`
/// also `etcd://HOST:PORT[,HOST:PORT…]/NAME`.
///
/// Programs that take it as an option run on any engine, also on those that are yet to come.
///
/// ```
/// use dapple_store::{Store, StoreOptions, StoreUrl, Table, TableOptions};
///
/// # let folder = tempfile::tempdir()?;
/// # let runtime = dapple_io::runtime_builder().build()?;
/// # runtime.block_on(async {
/// # let text = format!("redb:{}", folder.path().display());
/// // The text is `redb:data`.
/// let url: StoreUrl = text.parse()?;
/// let store = Store::open(url.engine(), StoreOptions::default()).await?;
/// let users: Table<String, u32, _> = store.table_or_create("users", TableOptions::default()).await?;
/// users.put(&"ann".to_owned(), &42).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrl(Kind);

/// The reason why a text is no URL of a store: a sentence that says how to write one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrlError(String);

/// The engines of this program.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Redb(PathBuf),
    #[cfg(feature = "fjall")]
    Fjall(PathBuf),
    #[cfg(feature = "etcd")]
    Etcd(EtcdUrl),
}

impl StoreUrl {
    /// The engine, at its place.
    #[must_use]
    pub fn engine(&self) -> AnyEngine {
        match &self.0 {
            Kind::Redb(directory) => AnyEngine::Redb(Redb::new(directory)),
            #[cfg(feature = "fjall")]
            Kind::Fjall(directory) => AnyEngine::Fjall(Fjall::new(directory)),
            #[cfg(feature = "etcd")]
            Kind::Etcd(url) => AnyEngine::Etcd(Etcd::at(url)),
        }
    }

    /// The directory with the files; `None` where the data is on other machines.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        match &self.0 {
            Kind::Redb(directory) => Some(directory),
            #[cfg(feature = "fjall")]
            Kind::Fjall(directory) => Some(directory),
            #[cfg(feature = "etcd")]
            Kind::Etcd(_) => None,
        }
    }

    /// Whether there is a store of this engine already, or what is left of one. Blocks: it asks the file system or etcd.
    ///
    /// # Errors
    /// etcd does not answer.
    pub fn is_there(&self) -> Result<bool, Failure> {
        match &self.0 {
            Kind::Redb(directory) => Ok(self.is_in(directory, "redb")),
            #[cfg(feature = "fjall")]
            Kind::Fjall(directory) => Ok(self.is_in(directory, "fjall")),
            #[cfg(feature = "etcd")]
            Kind::Etcd(url) => Etcd::at(url).is_there(),
        }
    }

    fn is_in(&self, directory: &Path, engine: &str) -> bool {
        let mut catalogs = CATALOGS.iter().filter(|(name, _)| *name == engine);
        catalogs.any(|(_, catalog)| directory.join(catalog).exists()) || self.engine().check(Place::Catalog).is_err()
    }
}

/// Parsing looks into the directory, so that a wrong engine is an error before any file is made.
///
/// # Errors
/// There is no such engine, or it is not part of this program; there is no directory in the text, or a store of another
/// engine in the directory; the address of etcd is none.
impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<StoreUrl, StoreUrlError> {
        let (engine, place) = text.split_once(':').ok_or_else(|| StoreUrlError(KNOWN.to_owned()))?;
        if engine == "etcd" {
            return etcd(text);
        }
        let kind: fn(PathBuf) -> Kind = match engine {
            "redb" => Kind::Redb,
            #[cfg(feature = "fjall")]
            "fjall" => Kind::Fjall,
            #[cfg(not(feature = "fjall"))]
            "fjall" => return Err(lacks("fjall")),
            _ => return Err(StoreUrlError(format!("there is no engine `{engine}`; {KNOWN}"))),
        };
        let place = place.strip_prefix("//").unwrap_or(place);
        if place.is_empty() {
            return Err(StoreUrlError(format!("the directory is missing; {KNOWN}")));
        }
        let directory = PathBuf::from(place);
        let mut others = CATALOGS.iter().filter(|(name, _)| *name != engine);
        match others.find(|(_, catalog)| directory.join(catalog).exists()) {
            Some((other, _)) => {
                Err(StoreUrlError(format!("{place} holds a store of {other}: name it `{other}:{place}`")))
            }
            None => Ok(StoreUrl(kind(directory))),
        }
    }
}

#[cfg(feature = "etcd")]
fn etcd(text: &str) -> Result<StoreUrl, StoreUrlError> {
    let url = text.parse().map_err(|error: dapple_etcd::EtcdUrlError| StoreUrlError(error.to_string()))?;
    Ok(StoreUrl(Kind::Etcd(url)))
}

#[cfg(not(feature = "etcd"))]
fn etcd(_: &str) -> Result<StoreUrl, StoreUrlError> {
    Err(lacks("etcd"))
}

#[cfg(not(all(feature = "etcd", feature = "fjall")))]
fn lacks(engine: &str) -> StoreUrlError {
    StoreUrlError(format!("this program was built without {engine}: build it with `--features {engine}`"))
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Redb(directory) => write!(f, "redb:{}", directory.display()),
            #[cfg(feature = "fjall")]
            Kind::Fjall(directory) => write!(f, "fjall:{}", directory.display()),
            #[cfg(feature = "etcd")]
            Kind::Etcd(url) => url.fmt(f),
        }
    }
}

impl fmt::Display for StoreUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StoreUrlError {}

/// The form of a URL of a store, for messages.
const KNOWN: &str = "a store is `redb:DIR` or `fjall:DIR`, where DIR is the directory with its files, or \
                     `etcd://HOST:PORT[,HOST:PORT…]/NAME`";

/// The file that each engine has in the directory of a store, also those that this program lacks.
const CATALOGS: [(&str, &str); 2] = [("redb", "catalog.redb"), ("fjall", "catalog.fjall")];
