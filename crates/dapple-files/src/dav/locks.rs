//! The locks of WebDAV's clients (RFC 4918, section 6).
//!
//! They are advisory towards other programs, end with their time or the server, and count at most [`LOCKS_MAX`]. dav-server's own table
//! has neither a limit nor an end of locks.

use std::sync::Arc;
use std::time::Duration;

use dapple::Colored;
use dapple::time::Instant;
use dapple_sched::environment::{random, system_now};
use dav_server::davpath::DavPath;
use dav_server::ls::{DavLock, DavLockSystem, LsFuture};
use xmltree::Element;

use crate::path::TreePath;

/// All locks, in a color of their own.
#[derive(Clone, Debug)]
pub(crate) struct Locks(Arc<Colored<Table>>);

#[derive(Debug, Default)]
struct Table {
    locks: Vec<Held>,
    next: u64,
}

#[derive(Debug)]
struct Held {
    path: TreePath,
    until: Instant,
    lock: DavLock,
}

/// A lock in the way of a request.
struct Question<'a> {
    path: TreePath,
    principal: Option<&'a str>,
    ignore_principal: bool,
    deep: bool,
    tokens: &'a [String],
}

impl Locks {
    pub(crate) fn new() -> Locks {
        Locks(Arc::new(Colored::new(Table::default())))
    }

    /// Whether a header field names a lock that another user took.
    pub(crate) async fn is_of_other(&self, user: &str, field: &[u8]) -> bool {
        let (user, field) = (user.to_owned(), String::from_utf8_lossy(field).into_owned());
        let is_other = move |held: &Held| {
            held.lock.principal.as_deref() != Some(user.as_str()) && field.contains(&held.lock.token)
        };
        self.0.with(move |table| table.current().locks.iter().any(is_other)).await
    }

    /// The number of locks.
    pub(crate) async fn len(&self) -> usize {
        self.0.with(|table| table.current().locks.len()).await
    }
}

impl DavLockSystem for Locks {
    fn lock(
        &self,
        path: &DavPath,
        principal: Option<&str>,
        owner: Option<&Element>,
        timeout: Option<Duration>,
        shared: bool,
        deep: bool,
    ) -> LsFuture<'_, Result<DavLock, DavLock>> {
        let lock = DavLock {
            token: String::new(),
            path: Box::new(path.clone()),
            principal: principal.map(str::to_owned),
            owner: owner.cloned().map(Box::new),
            timeout_at: None,
            timeout: None,
            shared,
            deep,
        };
        let path = tree_path(path);
        Box::pin(async move { self.0.with(|table| table.current().take(path, lock, timeout)).await })
    }

    fn unlock(&self, path: &DavPath, token: &str) -> LsFuture<'_, Result<(), ()>> {
        let (path, token) = (tree_path(path), token.to_owned());
        let remove = move |table: &mut Table| {
            let before = table.current().locks.len();
            // A token is given back at the path of the lock, or at one that it covers.
            table.locks.retain(|held| held.lock.token != token || !held.covers(&path));
            if table.locks.len() < before { Ok(()) } else { Err(()) }
        };
        Box::pin(async move { self.0.with(remove).await })
    }

    fn refresh(&self, path: &DavPath, token: &str, timeout: Option<Duration>) -> LsFuture<'_, Result<DavLock, ()>> {
        let (path, token) = (tree_path(path), token.to_owned());
        let refresh = move |table: &mut Table| {
            let mut locks = table.current().locks.iter_mut();
            let held = locks.find(|held| held.lock.token == token && held.covers(&path)).ok_or(())?;
            held.keep_for(timeout);
            Ok(held.lock.clone())
        };
        Box::pin(async move { self.0.with(refresh).await })
    }

    fn check(
        &self,
        path: &DavPath,
        principal: Option<&str>,
        ignore_principal: bool,
        deep: bool,
        submitted_tokens: &[String],
    ) -> LsFuture<'_, Result<(), DavLock>> {
        let path = tree_path(path);
        let (principal, tokens) = (principal.map(str::to_owned), submitted_tokens.to_vec());
        Box::pin(async move {
            let principal = principal.as_deref();
            let question = Question { path, principal, ignore_principal, deep, tokens: &tokens };
            self.0.with(|table| table.current().check(&question)).await
        })
    }

    fn discover(&self, path: &DavPath) -> LsFuture<'_, Vec<DavLock>> {
        let path = tree_path(path);
        let find = move |table: &mut Table| {
            let covering = table.current().locks.iter().filter(|held| held.covers(&path));
            covering.map(|held| held.lock.clone()).collect()
        };
        Box::pin(async move { self.0.with(find).await })
    }

    fn delete(&self, path: &DavPath) -> LsFuture<'_, Result<(), ()>> {
        let path = tree_path(path);
        Box::pin(async move {
            self.0.with(|table| table.locks.retain(|held| !held.path.is_in(&path))).await;
            Ok(())
        })
    }
}

impl Table {
    /// Itself, without the locks that have ended.
    fn current(&mut self) -> &mut Table {
        let now = Instant::now();
        self.locks.retain(|held| held.until > now);
        self
    }

    fn take(&mut self, path: TreePath, mut lock: DavLock, timeout: Option<Duration>) -> Result<DavLock, DavLock> {
        let in_the_way = self.locks.iter().find(|held| {
            let meets = held.covers(&path) || (lock.deep && held.path.is_in(&path));
            meets && !(held.lock.shared && lock.shared)
        });
        if let Some(held) = in_the_way {
            return Err(held.lock.clone());
        }
        let user = lock.principal.clone();
        let own = self.locks.iter().filter(|held| held.lock.principal == user).count();
        if self.locks.len() >= LOCKS_MAX || own >= LOCKS_OF_USER_MAX {
            tracing::warn!(locks = self.locks.len(), own, "no more locks are given");
            return Err(lock);
        }
        self.next += 1;
        lock.token = token(self.next);
        let mut held = Held { path, until: Instant::now(), lock };
        held.keep_for(timeout);
        let lock = held.lock.clone();
        self.locks.push(held);
        Ok(lock)
    }

    /// Whether a request may change a path: it names all exclusive locks, and one of the shared ones.
    fn check(&self, question: &Question<'_>) -> Result<(), DavLock> {
        let (mut holds_shared, mut first_shared) = (false, None);
        for held in &self.locks {
            let below = question.deep && held.path.is_in(&question.path);
            if !held.covers(&question.path) && !below {
                continue;
            }
            let is_own = question.ignore_principal || held.lock.principal.as_deref() == question.principal;
            let is_named = is_own && question.tokens.contains(&held.lock.token);
            match (is_named, held.lock.shared) {
                (true, _) => holds_shared = true,
                (false, false) => return Err(held.lock.clone()),
                (false, true) => first_shared = first_shared.or(Some(&held.lock)),
            }
        }
        match first_shared {
            Some(lock) if !holds_shared => Err(lock.clone()),
            _ => Ok(()),
        }
    }
}

impl Held {
    fn covers(&self, path: &TreePath) -> bool {
        if self.lock.deep { path.is_in(&self.path) } else { *path == self.path }
    }

    fn keep_for(&mut self, timeout: Option<Duration>) {
        let timeout = timeout.unwrap_or(LOCK_MAX).min(LOCK_MAX);
        self.until = Instant::now() + timeout;
        self.lock.timeout = Some(timeout);
        self.lock.timeout_at = Some(system_now() + timeout);
    }
}

/// A token that no other lock has. It is no secret: only the user that took the lock can use it ([`Locks::is_of_other`]).
fn token(count: u64) -> String {
    let random = random();
    format!(
        "opaquelocktoken:{:08x}-{:04x}-4{:03x}-8{:03x}-{count:012x}",
        random as u32,
        random >> 32 & 0xffff,
        random >> 48 & 0xfff,
        random >> 52 & 0xfff
    )
}

/// A path that names no file has no locks of its own: the root's cover it.
fn tree_path(path: &DavPath) -> TreePath {
    TreePath::parse(path.as_bytes()).unwrap_or_default()
}

/// The most locks, and those of one user.
const LOCKS_MAX: usize = 10_000;
const LOCKS_OF_USER_MAX: usize = 1_000;

/// The longest time of a lock; a client renews it.
const LOCK_MAX: Duration = Duration::from_secs(3600);
