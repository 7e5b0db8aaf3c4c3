//! Writes that this mount keeps to itself for a while, as far as the server delegates them.
//!
//! A program that makes a small file calls the kernel five or six times; with a delegation the server hears of it twice: of the opening,
//! and of all writes and attributes together when the program closes the file. They are sent
//!
//! - when the file is closed or synced, and the program waits for the outcome,
//! - before the file's attributes are asked for, it is read, or its directory is listed,
//! - before a lease is given back, and after [`KEPT_FOR`] in any case.
//!
//! Rejected: the kernel's own write-back (`FUSE_WRITEBACK_CACHE`), with which it trusts its length and times of a file more than the
//! server's; and closing without a wait, with which a full disk is found after the program has gone.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use dapple::sync::Limit;
use dapple::time::{Instant, sleep};
use dapple_sched::environment::system_now;

use super::Shared;
use crate::lease::Lease;
use crate::lock::lock;
use crate::tree::{AttributeChange, Attributes, FileTime, NewTime};
use crate::wire::{Action, Answer, DATA_MAX, PIECES_MAX};

/// The writes of one file that this mount keeps.
pub(super) struct Writer {
    /// One message at a time, so that they arrive in order.
    turn: Limit,
    kept: std::sync::Mutex<Kept>,
}

struct Kept {
    /// An open file by which it is sent.
    handle: u64,
    /// The grant by which the writes are this mount's own, and until when.
    delegation: (u64, Instant),
    pieces: Vec<(u64, BytesMut)>,
    len: usize,
    change: AttributeChange,
    /// As they will be, but for the times that the server sets.
    attributes: Attributes,
    /// Whether this mount made the file, so that it may change its attributes.
    is_new: bool,
    /// Whether something is kept, or on its way.
    is_dirty: bool,
    /// The failure of what was sent in the background, for the next call of a program.
    failed: Option<i32>,
}

/// Attributes from an answer, and when they were asked for.
type Sent = (Attributes, Option<Lease>, Instant);

impl Shared {
    /// Notes a delegation, or the handle by which writes can be sent.
    pub(super) fn may_keep(&self, number: u64, handle: u64, found: &Sent, is_new: bool) {
        let (attributes, Some(lease), asked) = found else { return };
        if !lease.writes {
            return;
        }
        if lock(&self.inodes).lease(attributes.node, Some(*lease), *asked).is_zero() {
            // Recalled before it arrived.
            return;
        }
        let until = *asked + Duration::from_millis(u64::from(lease.duration_ms)) / 2;
        let delegation = (lease.grant, until);
        let mut writers = lock(&self.writers);
        let writer = writers.entry(number).or_insert_with(|| {
            Arc::new(Writer {
                turn: Limit::new(1),
                kept: std::sync::Mutex::new(Kept {
                    handle,
                    delegation,
                    pieces: Vec::new(),
                    len: 0,
                    change: AttributeChange::default(),
                    attributes: *attributes,
                    is_new,
                    is_dirty: false,
                    failed: None,
                }),
            })
        });
        let mut kept = lock(&writer.kept);
        kept.delegation = delegation;
        if !kept.is_dirty {
            kept.attributes = *attributes;
        }
    }

    /// Keeps a write; `false` if it must be sent at once, after what is kept.
    pub(super) fn keep_write(
        self: &Arc<Self>,
        number: u64,
        handle: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<bool, i32> {
        let Some(writer) = self.writer(number) else { return Ok(false) };
        // The kernel's offset of an appending write is out of date if another mount has appended.
        let appends = self.appends(handle);
        let mut kept = lock(&writer.kept);
        if let Some(failed) = kept.failed.take() {
            return Err(failed);
        }
        let has_room = data.len() <= LARGE && kept.len + data.len() <= DATA_MAX && kept.pieces.len() < PIECES_MAX;
        // A time that a program has set comes after the writes before it, and not after this one.
        if !has_room || !kept.is_valid() || kept.change != AttributeChange::default() {
            return Ok(false);
        }
        if appends != self.appends(kept.handle) {
            return Ok(false);
        }
        let offset = if appends { kept.attributes.len } else { offset };
        match kept.pieces.last_mut() {
            Some((start, piece)) if *start + piece.len() as u64 == offset => piece.extend_from_slice(data),
            _ => kept.pieces.push((offset, BytesMut::from(data))),
        }
        kept.len += data.len();
        kept.attributes.len = kept.attributes.len.max(offset + data.len() as u64);
        self.note_dirty(number, &mut kept);
        Ok(true)
    }

    fn appends(&self, handle: u64) -> bool {
        lock(&self.open).get(&handle).is_some_and(|open| open.how.append)
    }

    /// Keeps a change of permissions and times of a file that this mount made; returns the attributes then.
    pub(super) fn keep_change(self: &Arc<Self>, number: u64, change: &AttributeChange) -> Option<Attributes> {
        let writer = self.writer(number)?;
        let mut kept = lock(&writer.kept);
        let is_own = change.len.is_none() && change.user.is_none() && change.group.is_none();
        if !kept.is_new || !kept.is_valid() || !is_own || kept.failed.is_some() {
            return None;
        }
        let now = FileTime::from_system_time(system_now());
        let time = |new: NewTime| match new {
            NewTime::Now => now,
            NewTime::At(time) => time,
        };
        kept.change.mode = change.mode.or(kept.change.mode);
        kept.change.accessed = change.accessed.or(kept.change.accessed);
        kept.change.modified = change.modified.or(kept.change.modified);
        let attributes = &mut kept.attributes;
        attributes.mode = change.mode.unwrap_or(attributes.mode);
        attributes.accessed = change.accessed.map_or(attributes.accessed, time);
        attributes.modified = change.modified.map_or(attributes.modified, time);
        attributes.changed = now;
        let attributes = *attributes;
        if *change != AttributeChange::default() {
            self.note_dirty(number, &mut kept);
        }
        Some(attributes)
    }

    fn note_dirty(self: &Arc<Self>, number: u64, kept: &mut Kept) {
        if !std::mem::replace(&mut kept.is_dirty, true) {
            let shared = self.clone();
            drop(self.handle.spawn(async move {
                sleep(KEPT_FOR).await;
                shared.settle(number).await;
            }));
        }
    }

    /// Sends what is kept of a file; an error is for a program that asks for the outcome.
    pub(super) async fn send_kept(&self, number: u64) -> Result<Option<Sent>, i32> {
        let Some(writer) = self.writer(number) else { return Ok(None) };
        let sent = self.send(number, &writer).await;
        match lock(&writer.kept).failed.take() {
            Some(failed) => Err(failed),
            None => Ok(sent),
        }
    }

    /// Sends what is kept of a file, for a program that asks for something else.
    pub(super) async fn settle(&self, number: u64) -> Option<Sent> {
        let writer = self.writer(number)?;
        self.send(number, &writer).await
    }

    /// Sends what is kept of all files.
    pub(super) async fn settle_all(&self) {
        let all: Vec<u64> = lock(&self.writers).keys().copied().collect();
        for number in all {
            self.settle(number).await;
        }
    }

    /// Ends the delegation of a file, once what is kept of it is sent.
    pub(super) async fn keep_no_more(&self, number: u64) {
        let Some(writer) = self.writer(number) else { return };
        lock(&writer.kept).delegation.1 = Instant::now();
        self.send(number, &writer).await;
    }

    /// As [`keep_no_more`](Self::keep_no_more), of all files.
    pub(super) async fn keep_nothing_more(&self) {
        let all: Vec<u64> = lock(&self.writers).keys().copied().collect();
        for number in all {
            self.keep_no_more(number).await;
        }
    }

    /// A handle is about to be closed: what was to be sent by it goes by another one.
    pub(super) fn stop_keeping(&self, number: u64, handle: u64) {
        // One that appends as this one does: only by such a one are the pieces written where they belong.
        let appends = self.appends(handle);
        let is_other = |other: u64, open: &super::Open| {
            other != handle && open.inode == number && open.how.write && open.how.append == appends
        };
        let other = lock(&self.open).iter().find(|(other, open)| is_other(**other, open)).map(|(other, _)| *other);
        let mut writers = lock(&self.writers);
        let Some(writer) = writers.get(&number).cloned() else { return };
        let mut kept = lock(&writer.kept);
        if kept.handle == handle {
            match other {
                Some(other) => kept.handle = other,
                None => drop(writers.remove(&number)),
            }
        }
    }

    /// Whether anything is kept of a file, or could not be sent.
    pub(super) fn keeps(&self, number: u64) -> bool {
        self.writer(number).is_some_and(|writer| {
            let kept = lock(&writer.kept);
            kept.is_dirty || kept.failed.is_some() || writer.turn.used() > 0
        })
    }

    fn writer(&self, number: u64) -> Option<Arc<Writer>> {
        lock(&self.writers).get(&number).cloned()
    }

    async fn send(&self, number: u64, writer: &Writer) -> Option<Sent> {
        if !lock(&writer.kept).is_dirty && writer.turn.used() == 0 {
            return None;
        }
        // The line has no bound, so there is always a turn.
        let _turn = writer.turn.acquire().await.ok()?;
        let (handle, delegation, pieces, change) = {
            let mut kept = lock(&writer.kept);
            if !kept.is_dirty {
                return None;
            }
            kept.is_dirty = false;
            kept.len = 0;
            let pieces = std::mem::take(&mut kept.pieces);
            (kept.handle, kept.delegation.0, pieces, std::mem::take(&mut kept.change))
        };
        let lens = pieces.iter().map(|(offset, piece)| (*offset, piece.len() as u32)).collect();
        let mut data = BytesMut::with_capacity(pieces.iter().map(|(_, piece)| piece.len()).sum());
        pieces.iter().for_each(|(_, piece)| data.extend_from_slice(piece));
        let action = Action::Put { handle, delegation: Some(delegation), pieces: lens, change };
        let asked = Instant::now();
        match self.with_handle(handle, action, &data).await {
            Ok((Answer::Found(attributes, lease), _)) => {
                let sent = (attributes, lease, asked);
                if !lease.is_some_and(|lease| lease.writes) {
                    lock(&writer.kept).delegation.1 = Instant::now();
                }
                self.may_keep(number, handle, &sent, false);
                Some(sent)
            }
            Ok(_) => self.keep_failure(writer, rustix::io::Errno::PROTO.raw_os_error()),
            Err(error) => self.keep_failure(writer, error),
        }
    }

    fn keep_failure(&self, writer: &Writer, error: i32) -> Option<Sent> {
        tracing::warn!(%error, "writes that were kept for a moment could not be sent");
        lock(&writer.kept).failed = Some(error);
        None
    }
}

impl Kept {
    /// Whether the delegation lasts.
    fn is_valid(&self) -> bool {
        self.delegation.1 > Instant::now()
    }
}

/// The longest that anything is kept.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Writes of more bytes gain nothing by waiting for others.
const LARGE: usize = 64 << 10;
