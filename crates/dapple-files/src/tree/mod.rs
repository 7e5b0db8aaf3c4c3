//! The tree of files below one directory, without any protocol.

mod attributes;
mod calls;
mod foreign;
mod leftover;
mod needed;
mod offers;
mod once;
mod pages;
mod replace;
mod upload;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dapple::fs::{Beneath, Dir, File};
use rustix::fs::OFlags;
use rustix::io::Errno;

pub use self::attributes::{AttributeChange, Attributes, Entry, FileTime, Kind, NewTime, NodeId, Space};
use self::foreign::Watched;
pub(crate) use self::needed::{Needed, is_changed};
pub use self::offers::Offers;
use self::once::What;
pub(crate) use self::once::{Once, UNDECIDED};
pub use self::pages::Page;
use self::pages::Windows;
pub(crate) use self::replace::Aside;
pub use self::upload::Upload;
use crate::lease::{Change, Client, ClientId, Lease, Leases};
use crate::path::TreePath;

/// The files below one directory. Cheap to clone.
///
/// No path leads out of the directory, at no moment: the kernel resolves paths beneath it (`openat2`), and follows no symbolic link. Links
/// are data, which a client may read and make, and which only the client follows. Renaming or moving the directory changes nothing.
///
/// Calls that change files first wait for the leases of other clients ([`Leases`]); `by` is the client that makes the change: its
/// own leases stay. A change has happened in the kernel when its call returns, and survives a crash of the process; only
/// [`sync`](Tree::sync), and an upload that is committed so, survive a crash of the machine.
///
/// Errors are those of the kernel, as `io::Error` with its number.
///
/// # Cancel safety
///
/// A call that reads changes nothing. A change may happen although its future is dropped, as a whole; no lease is granted until it has
/// ended.
#[derive(Clone)]
pub struct Tree {
    inner: Arc<Inner>,
    /// The call of a mount for which changes are noted.
    once: Option<Once>,
}

struct Inner {
    dir: Dir,
    leases: Leases,
    /// `None` if the kernel tells of no changes.
    watched: Option<Watched>,
    windows: Windows,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Cut to length 0.
    pub truncate: bool,
    /// Made if it does not exist, with these permissions.
    pub create: Option<u32>,
    /// Only if it does not exist.
    pub only_new: bool,
    /// Each write goes to the end of the file, whatever its offset.
    pub append: bool,
}

impl Access {
    fn flags(&self) -> OFlags {
        let mut flags = match (self.read, self.write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        flags.set(OFlags::TRUNC, self.truncate);
        flags.set(OFlags::APPEND, self.append);
        flags.set(OFlags::CREATE, self.create.is_some());
        flags.set(OFlags::EXCL, self.create.is_some() && self.only_new);
        flags
    }
}

impl Tree {
    /// Opens a directory with leases of 30 seconds.
    ///
    /// # Errors
    ///
    /// It does not exist, is no directory, or cannot be opened.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Tree> {
        Tree::with_leases(path, Leases::new(LEASE)).await
    }

    /// Opens a directory with leases of another duration.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub async fn with_leases(path: impl AsRef<Path>, leases: Leases) -> io::Result<Tree> {
        let watched = Watched::new(leases.clone());
        let watched = watched.inspect_err(|error| {
            tracing::warn!(%error, "changes that other programs make in the directory are seen when leases end");
        });
        let inner =
            Arc::new(Inner { dir: Dir::open(path).await?, leases, watched: watched.ok(), windows: Windows::default() });
        let tree = Tree { inner, once: None };
        // A kernel without `openat2` is found here, and not at the first request.
        tree.stat(&TreePath::root()).await?;
        Ok(tree)
    }

    /// The leases.
    pub fn leases(&self) -> &Leases {
        &self.inner.leases
    }

    /// The attributes of a file, or of a link itself.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub async fn stat(&self, path: &TreePath) -> io::Result<Attributes> {
        self.stat_by(path, None).await
    }

    async fn stat_by(&self, path: &TreePath, by: Option<ClientId>) -> io::Result<Attributes> {
        let look = || {
            let path = path.clone();
            self.inner.dir.look_beneath(move |beneath| calls::stat(beneath, &path))
        };
        self.look_settled(by, look, |found| vec![found.node]).await
    }

    /// The attributes of a file with a lease of them: until it ends or is recalled, they stay true. Attributes without a lease may be
    /// out of date at once.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub async fn stat_leased(&self, path: &TreePath, client: &Arc<Client>) -> io::Result<(Attributes, Option<Lease>)> {
        let first = self.stat_by(path, Some(client.id())).await?;
        self.stat_granted(path, first.node, client).await
    }

    /// As [`stat_leased`](Self::stat_leased), of a file with this identity: there is no lease if another has the name now.
    pub(crate) async fn stat_granted(
        &self,
        path: &TreePath,
        node: NodeId,
        client: &Arc<Client>,
    ) -> io::Result<(Attributes, Option<Lease>)> {
        let lease = self.inner.leases.grant(client, node).await;
        self.stat_after(path, node, client, lease).await
    }

    /// As [`stat_granted`](Self::stat_granted), with a delegation if it can be had.
    pub(crate) async fn stat_delegated(
        &self,
        path: &TreePath,
        node: NodeId,
        client: &Arc<Client>,
    ) -> io::Result<(Attributes, Option<Lease>)> {
        let lease = self.inner.leases.grant_writes(client, node).await;
        self.stat_after(path, node, client, lease).await
    }

    /// Attributes from before a grant may have changed before it.
    async fn stat_after(
        &self,
        path: &TreePath,
        node: NodeId,
        client: &Arc<Client>,
        lease: Option<Lease>,
    ) -> io::Result<(Attributes, Option<Lease>)> {
        let now = self.stat_watched(path, client).await?;
        let is_same = now.node == node;
        Ok((now, lease.filter(|_| is_same)))
    }

    /// The attributes of a file; other programs' changes are told from before they are read.
    async fn stat_watched(&self, path: &TreePath, client: &Client) -> io::Result<Attributes> {
        let look = || {
            let (path, inner) = (path.clone(), self.inner.clone());
            self.inner.dir.look_beneath(move |beneath| calls::stat_watched(beneath, &path, inner.watched.as_ref()))
        };
        self.look_settled(Some(client.id()), look, |found| vec![found.node]).await
    }

    /// The entries of a directory, in the order of their names; at most a million.
    ///
    /// # Errors
    ///
    /// `FileTooLarge` for a larger directory, of which [`page`](Self::page) returns one part after another; errors of the kernel.
    pub async fn list(&self, path: &TreePath) -> io::Result<Vec<Entry>> {
        let (mut entries, mut after) = (Vec::new(), Vec::new());
        loop {
            let page = self.page(path, &after).await?;
            entries.extend(page.entries);
            let Some(next) = page.next else { return Ok(entries) };
            if entries.len() > ENTRIES_MAX {
                let text = format!("a directory with more than {ENTRIES_MAX} entries");
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
            }
            after = next;
        }
    }

    /// The entries of a directory after a name, some thousands at most; the first page is after the empty name.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub async fn page(&self, path: &TreePath, after: &[u8]) -> io::Result<Page> {
        self.page_by(path, after, None).await
    }

    pub(crate) async fn page_by(&self, path: &TreePath, after: &[u8], by: Option<ClientId>) -> io::Result<Page> {
        self.look_settled(by, || self.look_page(path, after), nodes_of).await
    }

    /// Waits until other clients have sent the writes that they keep of the files of a page.
    pub(crate) async fn settle_page(&self, path: &TreePath, after: &[u8], by: Option<ClientId>) -> io::Result<()> {
        if self.inner.leases.has_delegations() {
            // The wait keeps no entries.
            let nodes = nodes_of(&self.look_page(path, after).await?);
            self.settle(&nodes, by).await;
        }
        Ok(())
    }

    async fn look_page(&self, path: &TreePath, after: &[u8]) -> io::Result<Page> {
        let (path, after, inner) = (path.clone(), after.to_vec(), self.inner.clone());
        self.inner.dir.run_beneath(move |beneath| pages::page(beneath, &path, &after, &inner.windows)).await
    }

    /// The first page of a directory with a lease of the list: of the names, not of the attributes of the files.
    ///
    /// # Errors
    ///
    /// As [`page`](Self::page).
    pub async fn page_leased(&self, path: &TreePath, client: &Arc<Client>) -> io::Result<(Page, Option<Lease>)> {
        let node = self.stat_watched(path, client).await?.node;
        let lease = self.inner.leases.grant(client, node).await;
        let page = self.page_by(path, b"", Some(client.id())).await?;
        let is_same = page.directory == node;
        Ok((page, lease.filter(|_| is_same)))
    }

    /// Opens a regular file.
    ///
    /// # Errors
    ///
    /// `ELOOP` for a symbolic link, `ENXIO` for a device or a pipe; other errors of the kernel.
    pub async fn open_file(&self, path: &TreePath, access: Access, by: Option<ClientId>) -> io::Result<File> {
        let job = |access: Access| {
            let at = path.clone();
            move |beneath: &Beneath| calls::open(beneath, &at, access.flags(), access.create.unwrap_or(0))
        };
        let file = match access.create {
            // Mostly it is new.
            Some(_) => match self.make_or_find(by, path, access, job(Access { only_new: true, ..access })).await {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !access.only_new => {
                    self.change(by, std::slice::from_ref(path), job(access)).await?
                }
                made => made?,
            },
            None if access.truncate => self.change(by, std::slice::from_ref(path), job(access)).await?,
            None => self.inner.dir.look_beneath(job(access)).await?,
        };
        let file = File::from_std(file);
        self.settle(&[of_file(&file)?.node], by).await;
        Ok(file)
    }

    /// The present path of an open file; `None` if it has no name in the tree any more.
    pub(crate) async fn path_of(&self, file: &File) -> io::Result<Option<TreePath>> {
        let file = file.clone();
        self.inner.dir.run_beneath(move |beneath| calls::path_of(beneath, file.as_std())).await
    }

    /// Reads as many bytes from an offset of an open file as there are, up to `len`.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub(crate) async fn read(
        &self,
        file: &File,
        node: NodeId,
        offset: u64,
        len: usize,
        by: Option<ClientId>,
    ) -> io::Result<Vec<u8>> {
        // Writes that are kept from now on began after this call.
        self.settle(&[node], by).await;
        read_whole(file, offset, len).await
    }

    /// Writes all bytes at an offset of an open file, which the caller also names by its identity. A file grows if needed.
    ///
    /// # Errors
    ///
    /// Errors of the kernel; a part may have been written then.
    pub async fn write(
        &self,
        file: &File,
        node: NodeId,
        offset: u64,
        data: impl Into<Vec<u8>>,
        by: Option<ClientId>,
    ) -> io::Result<()> {
        let (tree, file, data) = (self.clone(), file.clone(), data.into());
        let write = async move {
            let _change = tree.inner.leases.change(by, &[node]).await;
            file.write_all_at(offset, data).await
        };
        whole(write).await
    }

    /// Writes several pieces, each at an offset, and then changes attributes, during a change that waited for leases. It must not be
    /// dropped before its end.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write) and [`set_open`](Self::set_open).
    pub(crate) async fn write_pieces(
        &self,
        _during: Change,
        file: &File,
        pieces: Vec<(u64, Bytes)>,
        change: AttributeChange,
    ) -> io::Result<()> {
        for (offset, data) in pieces {
            file.write_all_at(offset, data).await?;
        }
        if change != AttributeChange::default() {
            let file = file.clone();
            self.inner.dir.run_beneath(move |_| calls::set_open(file.as_std(), &change)).await?;
        }
        Ok(())
    }

    /// Makes a directory with these permissions.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub async fn make_dir(&self, path: &TreePath, mode: u32, by: Option<ClientId>) -> io::Result<Attributes> {
        let at = path.clone();
        self.make(by, path, move |beneath| calls::make_dir(beneath, &at, mode)).await
    }

    /// Makes the name of a pipe or a socket, which programs of one machine then use; not of a device.
    ///
    /// # Errors
    ///
    /// `EPERM` for another kind; other errors of the kernel.
    pub async fn make_node(
        &self,
        path: &TreePath,
        kind: Kind,
        mode: u32,
        by: Option<ClientId>,
    ) -> io::Result<Attributes> {
        let at = path.clone();
        self.make(by, path, move |beneath| calls::make_node(beneath, &at, kind, mode)).await
    }

    /// Removes a file, a link, or anything else but a directory.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub async fn remove_file(&self, path: &TreePath, by: Option<ClientId>) -> io::Result<()> {
        self.remove_file_if(&Needed::Any, path, by).await
    }

    /// As [`remove_file`](Self::remove_file), if the file is then the one that is needed.
    pub(crate) async fn remove_file_if(
        &self,
        needed: &Needed,
        path: &TreePath,
        by: Option<ClientId>,
    ) -> io::Result<()> {
        let at = path.clone();
        let job = self.noted(What::Removes(at.clone()), move |beneath: &Beneath| calls::remove(beneath, &at, false));
        self.change_if(needed, by, std::slice::from_ref(path), job).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub async fn remove_dir(&self, path: &TreePath, by: Option<ClientId>) -> io::Result<()> {
        let at = path.clone();
        let job = self.noted(What::Removes(at.clone()), move |beneath: &Beneath| calls::remove(beneath, &at, true));
        self.change(by, std::slice::from_ref(path), job).await
    }

    /// Renames a file or a directory; with `replace`, in place of a file, or of an empty directory, of the new name.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` without `replace`; other errors of the kernel.
    pub async fn rename(&self, from: &TreePath, to: &TreePath, replace: bool, by: Option<ClientId>) -> io::Result<()> {
        self.rename_if(&Needed::Any, from, to, replace, by).await
    }

    /// As [`rename`](Self::rename), if the file is then the one that is needed.
    pub(crate) async fn rename_if(
        &self,
        needed: &Needed,
        from: &TreePath,
        to: &TreePath,
        replace: bool,
        by: Option<ClientId>,
    ) -> io::Result<()> {
        let (a, b) = (from.clone(), to.clone());
        let what = What::Renames(a.clone(), b.clone());
        let job = self.noted(what, move |beneath: &Beneath| calls::rename(beneath, &a, &b, replace));
        self.change_if(needed, by, &[from.clone(), to.clone()], job).await
    }

    /// As [`write`](Self::write), if the file is then the one that is needed under the path.
    pub(crate) async fn write_if(
        &self,
        needed: Needed,
        path: &TreePath,
        file: &File,
        offset: u64,
        data: Bytes,
    ) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let (at, file) = (path.clone(), file.clone());
        let write = move |_: &Beneath| file.as_std().write_all_at(&data, offset);
        self.change_if(&needed, None, std::slice::from_ref(&at), write).await
    }

    /// Gives a file another name.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub async fn link(&self, from: &TreePath, to: &TreePath, by: Option<ClientId>) -> io::Result<Attributes> {
        let (a, b) = (from.clone(), to.clone());
        let job = self.noted(What::Makes(b.clone()), move |beneath: &Beneath| calls::link(beneath, &a, &b));
        self.change(by, &[from.clone(), to.clone()], job).await
    }

    /// Makes a symbolic link with any text; the server never follows it.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub async fn symlink(&self, target: &[u8], path: &TreePath, by: Option<ClientId>) -> io::Result<Attributes> {
        let (target, at) = (target.to_vec(), path.clone());
        self.make(by, path, move |beneath| calls::symlink(beneath, &target, &at)).await
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is no link; other errors of the kernel.
    pub async fn read_link(&self, path: &TreePath) -> io::Result<Vec<u8>> {
        let path = path.clone();
        self.inner.dir.run_beneath(move |beneath| calls::read_link(beneath, &path)).await
    }

    /// Changes attributes; returns all.
    ///
    /// # Errors
    ///
    /// Errors of the kernel. Those before the one that failed may have been changed, in the order of [`AttributeChange`]'s fields, the
    /// owner before the permissions.
    pub async fn set_attributes(
        &self,
        path: &TreePath,
        change: AttributeChange,
        by: Option<ClientId>,
    ) -> io::Result<Attributes> {
        let at = path.clone();
        let job = move |beneath: &Beneath| calls::set_attributes(beneath, &at, &change);
        self.change(by, std::slice::from_ref(path), job).await
    }

    /// As [`set_attributes`](Self::set_attributes), of an open file, which may have no name any more.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub async fn set_open(
        &self,
        file: &File,
        node: NodeId,
        change: AttributeChange,
        by: Option<ClientId>,
    ) -> io::Result<Attributes> {
        let during = self.inner.leases.change(by, &[node]).await;
        let file = file.clone();
        self.run_during(during, move |_| calls::set_open(file.as_std(), &change)).await
    }

    /// Returns once the data and attributes of a file, or the names in a directory, are on the disk.
    ///
    /// # Errors
    ///
    /// Errors of the kernel: what was written before may be lost.
    pub async fn sync(&self, path: &TreePath) -> io::Result<()> {
        let path = path.clone();
        let job = move |beneath: &Beneath| match calls::stat(beneath, &path)?.kind {
            Kind::Directory => calls::sync_dir(beneath.open(path.as_relative(), OFlags::PATH.bits() as i32, 0)?),
            _ => calls::open(beneath, &path, OFlags::RDONLY, 0)?.sync_all(),
        };
        self.inner.dir.run_beneath(job).await
    }

    /// The room of the file system.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub async fn space(&self) -> io::Result<Space> {
        self.inner.dir.run_beneath(calls::space).await
    }

    /// An extended attribute, with a name that begins with `user.`; `None` if the file has none of this name.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for another name, or where the file system has no such attributes; other errors of the kernel.
    pub async fn extended(&self, path: &TreePath, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
        let (path, name) = (path.clone(), name.to_owned());
        self.inner.dir.run_beneath(move |beneath| calls::extended(beneath, &path, &name)).await
    }

    /// Sets an extended attribute, or removes it.
    ///
    /// # Errors
    ///
    /// As [`extended`](Self::extended).
    pub async fn set_extended(
        &self,
        path: &TreePath,
        name: &OsStr,
        value: Option<Vec<u8>>,
        by: Option<ClientId>,
    ) -> io::Result<()> {
        let (at, name) = (path.clone(), name.to_owned());
        let job = move |beneath: &Beneath| calls::set_extended(beneath, &at, &name, value.as_deref());
        self.change(by, std::slice::from_ref(path), job).await
    }

    /// Changes an extended attribute by its value, in one step.
    pub(crate) async fn update_extended(
        &self,
        needed: &Needed,
        path: &TreePath,
        name: &OsStr,
        update: impl FnOnce(Option<Vec<u8>>) -> io::Result<Option<Vec<u8>>> + Send + 'static,
    ) -> io::Result<()> {
        let during = self.inner.leases.change_alone(None, &self.nodes(std::slice::from_ref(path)).await?).await;
        let (at, name, needed) = (path.clone(), name.to_owned(), *needed);
        let job = move |beneath: &Beneath| {
            needed.check(beneath, &at)?;
            let value = update(calls::extended(beneath, &at, &name)?)?;
            calls::set_extended(beneath, &at, &name, value.as_deref())
        };
        self.run_during(during, job).await
    }

    /// The names of a file's extended attributes, as far as they are open to clients.
    ///
    /// # Errors
    ///
    /// As [`extended`](Self::extended).
    pub async fn list_extended(&self, path: &TreePath) -> io::Result<Vec<OsString>> {
        let path = path.clone();
        self.inner.dir.run_beneath(move |beneath| calls::list_extended(beneath, &path)).await
    }

    /// Looks at files, after other clients have sent the writes to them that they keep. Those sent during a look may be missing in it, so
    /// another one follows; once is enough, since writes that are kept from then on began after this call.
    async fn look_settled<T, F: Future<Output = io::Result<T>>>(
        &self,
        by: Option<ClientId>,
        look: impl Fn() -> F,
        nodes: impl FnOnce(&T) -> Vec<NodeId>,
    ) -> io::Result<T> {
        let leases = &self.inner.leases;
        let ended = leases.delegations_ended();
        let found = look().await?;
        let were_kept = leases.has_delegations() && leases.settle(&nodes(&found), by).await;
        if were_kept || leases.delegations_ended() != ended { look().await } else { Ok(found) }
    }

    /// Waits for writes that other clients keep of these files; whether there were any.
    pub(crate) async fn settle(&self, nodes: &[NodeId], by: Option<ClientId>) -> bool {
        self.inner.leases.has_delegations() && self.inner.leases.settle(nodes, by).await
    }

    /// Runs a job that makes a new file, and so changes only its directory, after other clients' leases of that have ended.
    async fn make<T: Send + 'static>(
        &self,
        by: Option<ClientId>,
        path: &TreePath,
        job: impl FnOnce(&Beneath) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let parent = path.parent().ok_or(Errno::EXIST)?;
        let find = move |beneath: &Beneath| calls::stat(beneath, &parent).map(|found| found.node);
        let node = self.inner.dir.look_beneath(find).await?;
        let during = self.begin(&[node], by, self.once.is_some()).await;
        self.run_during(during, self.noted(What::Makes(path.clone()), job)).await
    }

    /// Makes a file. One that may be there already can be made twice.
    async fn make_or_find<T: Send + 'static>(
        &self,
        by: Option<ClientId>,
        path: &TreePath,
        access: Access,
        job: impl FnOnce(&Beneath) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        match access.only_new {
            true => self.make(by, path, job).await,
            false => self.once(None).make(by, path, job).await,
        }
    }

    /// Begins a change; alone if it is noted.
    async fn begin(&self, nodes: &[NodeId], by: Option<ClientId>, is_alone: bool) -> Change {
        match is_alone {
            true => self.inner.leases.change_alone(by, nodes).await,
            false => self.inner.leases.change(by, nodes).await,
        }
    }

    /// Runs a job that changes these paths, after other clients' leases of them and of their directories have ended.
    async fn change<T: Send + 'static>(
        &self,
        by: Option<ClientId>,
        paths: &[TreePath],
        job: impl FnOnce(&Beneath) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.change_if(&Needed::Any, by, paths, job).await
    }

    /// As [`change`](Self::change), if the first path is then in the state that is needed.
    async fn change_if<T: Send + 'static>(
        &self,
        needed: &Needed,
        by: Option<ClientId>,
        paths: &[TreePath],
        job: impl FnOnce(&Beneath) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let during = self.begin_change(needed, by, paths).await?;
        let (needed, first) = (*needed, paths.first().cloned().unwrap_or_default());
        self.run_during(during, move |beneath| {
            needed.check(beneath, &first)?;
            job(beneath)
        })
        .await
    }

    /// Begins a change, which runs alone if it needs a state.
    async fn begin_change(&self, needed: &Needed, by: Option<ClientId>, paths: &[TreePath]) -> io::Result<Change> {
        let nodes = self.nodes(paths).await?;
        Ok(match needed {
            Needed::Any => self.begin(&nodes, by, self.once.is_some()).await,
            _ => self.inner.leases.change_alone(by, &nodes).await,
        })
    }

    /// The identities of the files that a change of these paths concerns.
    async fn nodes(&self, paths: &[TreePath]) -> io::Result<Vec<NodeId>> {
        let concerned = paths.to_vec();
        self.inner.dir.look_beneath(move |beneath| calls::nodes(beneath, &concerned)).await
    }

    /// Runs a job, with which the change ends, also if the caller has left by then.
    async fn run_during<T: Send + 'static>(
        &self,
        change: Change,
        job: impl FnOnce(&Beneath) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let job = move |beneath: &Beneath| {
            let _change = change;
            job(beneath)
        };
        self.inner.dir.run_beneath(job).await
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("dir", &self.inner.dir).finish_non_exhaustive()
    }
}

fn nodes_of(page: &Page) -> Vec<NodeId> {
    page.entries.iter().map(|entry| entry.attributes.node).collect()
}

/// The attributes of an open file. Does not wait: the file is open.
pub(crate) fn of_file(file: &File) -> io::Result<Attributes> {
    Ok(Attributes::of(&rustix::fs::fstat(file)?))
}

/// Reads as many bytes from an offset as there are, up to `len`. Fewer mean that the file ends there, and not only that fewer are in the
/// kernel's cache.
pub(crate) async fn read_whole(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let there = of_file(file)?.len.saturating_sub(offset);
    let len = usize::try_from(there).unwrap_or(usize::MAX).min(len);
    match file.read_exact_at(offset, len).await {
        // It became shorter meanwhile.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => file.read_at(offset, len).await,
        read => read,
    }
}

/// Runs a change to its end, also if the caller leaves before.
pub(crate) async fn whole<T: Send + 'static>(
    change: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    dapple::spawn(change).await.map_err(|error| io::Error::other(error.to_string()))?
}

/// Copies all data of a file into another, by the file system where it can share blocks.
pub(crate) async fn copy(from: &File, to: &File) -> io::Result<()> {
    let (from, to) = (from.clone(), to.clone());
    let copied = dapple::blocking::spawn_blocking(move || io::copy(&mut from.as_std(), &mut to.as_std()));
    copied.await.map_err(io::Error::other)?.map(drop)
}

/// The most entries of a directory that a listing returns.
const ENTRIES_MAX: usize = 1_000_000;

/// The duration of a lease if a program names none.
pub const LEASE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
