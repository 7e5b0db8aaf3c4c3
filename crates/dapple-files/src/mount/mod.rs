//! A mount of a served tree (FUSE).
//!
//! The kernel keeps attributes, names, listings and data for as long as their leases last, and asks this client for all others. A recall
//! removes them from the kernel before the lease is given back.

mod answers;
mod calls;
mod filesystem;
mod inodes;
mod locks;
mod recalls;
mod remote;
mod writes;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple::tls::TlsConnector;
use dapple::{Color, Handle};
use dapple_sched::environment::HashMap;
use fuser::{BackgroundSession, Config, MountOption, SessionACL};

use self::filesystem::MountedFiles;
use self::inodes::Inodes;
use self::locks::Locks;
pub use self::remote::MountError;
use self::remote::Remote;
use self::writes::Writer;
use crate::lease::Lease;
use crate::tree::Entry;
use crate::wire::OpenHow;

/// The server of a mount, and how to treat its files.
#[derive(Clone)]
pub struct MountOptions {
    /// The server: `https://HOST:PORT`, or `http://HOST:PORT` for one on this machine.
    pub url: String,
    /// The secret of `Authorization: Bearer`.
    pub token: Option<String>,
    /// User and password, if there is no token.
    pub login: Option<(String, String)>,
    /// The certificates to trust; `None` for those that Mozilla trusts.
    pub tls: Option<TlsConnector>,
    /// How long a call is tried again while the server cannot be reached; then it fails with `EIO`.
    pub patience: Duration,
    /// Show the owners that the server has; otherwise all files belong to the user that mounts them.
    pub server_owners: bool,
    /// Let other users of this machine use the files too.
    pub allow_other: bool,
}

/// A mounted tree. Dropping it unmounts it.
pub struct Mounted {
    session: BackgroundSession,
    shared: Arc<Shared>,
}

/// The state that the kernel's calls share.
struct Shared {
    remote: Remote,
    handle: Handle,
    inodes: Mutex<Inodes>,
    open: Mutex<HashMap<u64, Open>>,
    /// The listings of directories that programs read.
    listings: Mutex<HashMap<u64, Listing>>,
    /// The files of which writes may be kept.
    writers: Mutex<HashMap<u64, Arc<Writer>>>,
    locks: Mutex<Locks>,
    /// User and group to show, in place of the server's.
    owner: Option<(u32, u32)>,
}

/// A directory that a program reads.
struct Listing {
    /// The positions at which pages began, and the names that came before.
    starts: Vec<(u64, Vec<u8>)>,
    page: Arc<Page>,
}

/// A page of a directory.
struct Page {
    /// The position of the first entry.
    start: u64,
    /// With their leases.
    entries: Vec<(Entry, Option<Lease>)>,
    asked: dapple::time::Instant,
    /// The name after which the next page begins.
    next: Option<Vec<u8>>,
}

/// An open file, so that it can be opened again at a server that started anew.
#[derive(Clone)]
struct Open {
    inode: u64,
    how: OpenHow,
    /// The start of the server's machine, as it was known then.
    boot: u64,
    /// The beginning of the file, read when it was opened, and how long it may be used.
    first: bytes::Bytes,
    /// Whether that is the whole file.
    is_whole: bool,
    first_until: dapple::time::Instant,
}

/// Mounts a served tree at an empty directory.
///
/// # Errors
///
/// The server cannot be reached or lets this client not in; the kernel or `fusermount3` refuses.
///
/// # Cancel safety
///
/// Nothing is mounted if the future is dropped.
pub async fn mount(options: MountOptions, at: impl AsRef<Path>) -> Result<Mounted, MountError> {
    let remote = Remote::new(&options)?;
    let (start, lease, root) = remote.hello().await?;
    let owner =
        (!options.server_owners).then(|| (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()));
    let shared = Arc::new(Shared {
        remote,
        handle: Handle::current(),
        inodes: Mutex::new(Inodes::new(root.node)),
        open: Mutex::default(),
        listings: Mutex::default(),
        writers: Mutex::default(),
        locks: Mutex::default(),
        owner,
    });
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.url.clone()),
        MountOption::Subtype("dapple".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    let files = MountedFiles(shared.clone());
    let at = at.as_ref().to_owned();
    let made = dapple::blocking::spawn_blocking(move || fuser::spawn_mount(files, &at, &config));
    let session = made.await.map_err(|error| MountError::Mount(io::Error::other(error)))?.map_err(MountError::Mount)?;
    drop(Color::new().spawn_background(recalls::run(shared.clone(), session.notifier(), start, lease)));
    Ok(Mounted { session, shared })
}

impl Mounted {
    /// Whether it was unmounted, by `umount` for example.
    pub fn is_over(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Makes new connections for the calls from now on, which trust other certificates, or show another one. Calls in flight keep theirs.
    ///
    /// # Errors
    ///
    /// The client cannot be made; nothing has changed then.
    pub fn set_tls(&self, tls: Option<&TlsConnector>) -> Result<(), MountError> {
        self.shared.remote.set_tls(tls)
    }

    /// Unmounts it. Blocks until the kernel has sent its last call.
    ///
    /// # Errors
    ///
    /// A program still uses it.
    pub fn unmount(self) -> io::Result<()> {
        self.session.umount_and_join()
    }
}
