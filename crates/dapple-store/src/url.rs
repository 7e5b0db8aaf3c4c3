//! URLs of stores.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[cfg(feature = "fjall")]
use crate::Fjall;
use crate::Redb;
use crate::engine::{AnyEngine, Engine, Place};

/// The engine and the place of a store, as a text: `redb:DIR`, and with the feature `fjall` also `fjall:DIR`.
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
pub struct StoreUrl {
    kind: EngineKind,
    directory: PathBuf,
}

/// The reason why a text is no URL of a store: a sentence that says how to write one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrlError(String);

/// The engines of this program. Each keeps its files in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EngineKind {
    Redb,
    #[cfg(feature = "fjall")]
    Fjall,
}

impl StoreUrl {
    /// The engine, at its place.
    #[must_use]
    pub fn engine(&self) -> AnyEngine {
        match self.kind {
            EngineKind::Redb => AnyEngine::Redb(Redb::new(&self.directory)),
            #[cfg(feature = "fjall")]
            EngineKind::Fjall => AnyEngine::Fjall(Fjall::new(&self.directory)),
        }
    }

    /// The directory with the files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether there is a store of this engine already, or what is left of one. Asks the file system.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.directory.join(self.kind.catalog()).exists() || self.engine().check(Place::Catalog).is_err()
    }
}

/// Parsing looks into the directory, so that a wrong engine is an error before any file is made.
///
/// # Errors
/// There is no such engine, or it is not part of this program; there is no directory in the text, or a store of another
/// engine in the directory.
impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<StoreUrl, StoreUrlError> {
        let (engine, place) = text.split_once(':').ok_or_else(|| StoreUrlError(KNOWN.to_owned()))?;
        let kind = EngineKind::named(engine)?;
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
            None => Ok(StoreUrl { kind, directory }),
        }
    }
}

impl EngineKind {
    fn named(name: &str) -> Result<EngineKind, StoreUrlError> {
        match name {
            "redb" => Ok(EngineKind::Redb),
            #[cfg(feature = "fjall")]
            "fjall" => Ok(EngineKind::Fjall),
            #[cfg(not(feature = "fjall"))]
            "fjall" => {
                Err(StoreUrlError("this program was built without fjall: build it with `--features fjall`".to_owned()))
            }
            _ => Err(StoreUrlError(format!("there is no engine `{name}`; {KNOWN}"))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            EngineKind::Redb => "redb",
            #[cfg(feature = "fjall")]
            EngineKind::Fjall => "fjall",
        }
    }

    fn catalog(self) -> &'static str {
        CATALOGS.iter().find(|(name, _)| *name == self.name()).map_or("", |(_, catalog)| catalog)
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.directory.display())
    }
}

impl fmt::Display for StoreUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StoreUrlError {}

/// The form of a URL of a store, for messages.
const KNOWN: &str = "a store is `redb:DIR` or `fjall:DIR`, where DIR is the directory with its files";

/// The file that each engine has in the directory of a store, also those that this program lacks.
const CATALOGS: [(&str, &str); 2] = [("redb", "catalog.redb"), ("fjall", "catalog.fjall")];
