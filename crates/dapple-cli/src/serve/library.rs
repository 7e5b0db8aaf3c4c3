//! Makes pages of files.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::at_once::AtOnce;
use super::disk::{FileHandle, Resolved, Root, file_name};
use super::labels::Labels;
use super::listing;
use super::pages::{Content, Page};
use super::path::is_directory;
use crate::server::Admission;

/// The state that every look-up in the file system needs.
pub(crate) struct Library {
    pub(crate) root: Root,
    pub(crate) labels: Labels,
    /// Whether directories without an index are listed.
    pub(crate) list: AtomicBool,
    /// Whether hidden files are listed.
    pub(crate) hidden: bool,
    /// Larger files are streamed and not cached, in bytes.
    pub(crate) page_len_max: u64,
    /// Makes connections close if descriptors for files run out.
    pub(crate) admission: Arc<Admission>,
}

/// A fact about a path before the disk is asked.
pub(crate) enum Before {
    Nothing,
    /// The file that it named at an earlier look-up.
    Known(Arc<FileHandle>),
    /// The file that it names now.
    Opened(Arc<FileHandle>),
}

/// The result of a look-up that does not wait.
pub(crate) enum Glance {
    All(Resolved, Content),
    /// [`look`](Library::look) has to continue from here.
    Begun(Before),
}

impl Library {
    /// Looks up `key` without waiting: answers for directories and for files up to
    /// [`AT_ONCE_LEN_MAX`] if the kernel has names and content in its caches.
    pub(crate) fn look_at_once(&self, key: &[u8], cached: Option<&Arc<Page>>) -> Glance {
        let name = file_name(key);
        let stamp = cached.and_then(|page| page.state).filter(|state| state.certain).map(|state| state.stamp);
        let seen = self.root.look_at_once(&name, stamp, self.page_len_max.min(AT_ONCE_LEN_MAX));
        match (seen, cached) {
            (Some(AtOnce::Unchanged), Some(page)) => Glance::All(Resolved::Read, Content::Page(page.clone())),
            (Some(AtOnce::Read(state, body)), _) => {
                let meta = self.labels.plain(key, &name, &state);
                Glance::All(Resolved::Read, Content::Page(Arc::new(Page::new(Some(state), meta, body))))
            }
            (Some(AtOnce::Opened(file)), _) => Glance::Begun(Before::Opened(Arc::new(file))),
            (Some(AtOnce::Directory), _) if !is_directory(key) => Glance::All(Resolved::Directory, Content::Directory),
            (Some(AtOnce::Directory | AtOnce::Nothing), _) if !(self.lists() && is_directory(key)) => {
                Glance::All(Resolved::Nothing, Content::Nothing)
            }
            _ => Glance::Begun(Before::Nothing),
        }
    }

    /// Looks at the file system. Reuses cached results that are still right.
    ///
    /// # Errors
    ///
    /// The disk, or the supply of file descriptors, fails.
    pub(crate) async fn look(
        &self,
        key: &[u8],
        cached: Option<&Arc<Page>>,
        before: Before,
    ) -> io::Result<(Resolved, Content)> {
        let resolved = match before {
            Before::Opened(file) => Resolved::File(file),
            Before::Known(file) => self.root.resolve(key, Some(file)).await?,
            Before::Nothing => self.root.resolve(key, None).await?,
        };
        let content = match &resolved {
            Resolved::Directory => Content::Directory,
            Resolved::File(file) => match self.content_of(key, file, cached).await? {
                // Its content is in memory: the file need not stay open.
                Content::Page(page) => return Ok((Resolved::Read, Content::Page(page))),
                content => content,
            },
            Resolved::Nothing | Resolved::Read | Resolved::Listed => match self.listing(key).await? {
                Some(page) => return Ok((Resolved::Listed, Content::Page(page))),
                None => Content::Nothing,
            },
        };
        Ok((resolved, content))
    }

    /// The content of a file: in memory, or the file itself if it is too long for that.
    async fn content_of(&self, key: &[u8], file: &Arc<FileHandle>, cached: Option<&Arc<Page>>) -> io::Result<Content> {
        if let Some(page) = cached.filter(|page| page.is(file.state.stamp)) {
            return Ok(Content::Page(page.clone()));
        }
        if file.state.stamp.len > self.page_len_max {
            file.meta(|| self.labels.plain(key, &file_name(key), &file.state));
            return Ok(Content::File(file.clone()));
        }
        Ok(match file.read_all().await? {
            Some((state, body)) => {
                let meta = self.labels.plain(key, &file_name(key), &state);
                Content::Page(Arc::new(Page::new(Some(state), meta, body)))
            }
            None => Content::Unsteady,
        })
    }

    fn lists(&self) -> bool {
        self.list.load(Ordering::Relaxed)
    }

    /// The list of a directory, if lists are enabled and the directory exists.
    async fn listing(&self, key: &[u8]) -> io::Result<Option<Arc<Page>>> {
        if !is_directory(key) || !self.lists() {
            return Ok(None);
        }
        let Some(directory) = self.root.open_directory(key).await? else {
            return Ok(None);
        };
        let list = listing::List { key: key.to_vec(), hidden: self.hidden, follow: self.root.follows() };
        let page = listing::page(list, self.root.dir().clone(), directory).await?;
        let meta = self.labels.made(key, "text/html; charset=utf-8", &listing::tag(&page));
        Ok(Some(Arc::new(Page::new(None, meta, page.into()))))
    }
}

/// How much is read at once, if the kernel has it: some 10 us of a worker's time.
const AT_ONCE_LEN_MAX: u64 = 64 * 1024;
