//! The memory that a connection needs while it works. Waiting connections hold none.

use std::cell::RefCell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::task::{Context, Poll, ready};

use dapple_http::{Field, Found, HeadLimits, HeadScan, Refusal};

use super::outgoing::Outgoing;

/// Buffers for one connection.
pub(super) struct Workspace {
    /// The input: `filled` bytes were read, `done` of them handled.
    input: Vec<u8>,
    done: usize,
    filled: usize,
    /// Looks for the end of the head that begins at `done`.
    scan: HeadScan,
    /// Empty between requests; keeps its memory.
    pub(super) fields: Vec<Field<'static>>,
    pub(super) out: Outgoing,
}

/// A workspace on loan from the worker's pool.
pub(super) struct Lease(Option<Box<Workspace>>);

impl Lease {
    pub(super) fn take() -> Lease {
        let pooled = POOL.with_borrow_mut(Vec::pop);
        Lease(Some(pooled.unwrap_or_else(|| Box::new(Workspace::new()))))
    }

    /// Takes a workspace with room for `len` bytes of input.
    pub(super) fn with_room(len: usize) -> Lease {
        let mut lease = Lease::take();
        if lease.input.len() < len {
            lease.input.resize(len, 0);
        }
        lease
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mut workspace) = self.0.take() else { return };
        if !workspace.clear() {
            return;
        }
        // On a thread that ends, the pool may have been dropped; then the workspace is freed.
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if pool.len() < POOL_LEN_MAX {
                pool.push(workspace);
            }
        });
    }
}

impl Deref for Lease {
    type Target = Workspace;

    fn deref(&self) -> &Workspace {
        self.0.as_ref().expect("there until the drop")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Workspace {
        self.0.as_mut().expect("there until the drop")
    }
}

impl Workspace {
    fn new() -> Workspace {
        Workspace {
            input: vec![0; INPUT_LEN],
            done: 0,
            filled: 0,
            scan: HeadScan::new(),
            fields: Vec::with_capacity(FIELDS_LEN),
            out: Outgoing::new(),
        }
    }

    /// The bytes that were read and not handled.
    pub(super) fn input(&self) -> &[u8] {
        &self.input[self.done..self.filled]
    }

    /// Finds the end of the head at the start of the input; see [`HeadScan::find`].
    pub(super) fn find_head(&mut self, limits: &HeadLimits) -> Result<Option<Found>, Refusal> {
        self.scan.find(&self.input[self.done..self.filled], limits)
    }

    /// The input and, separately, the output.
    pub(super) fn split(&mut self) -> (&[u8], &mut Outgoing) {
        (&self.input[self.done..self.filled], &mut self.out)
    }

    /// Marks `len` bytes of the input as handled. A head begins after them.
    pub(super) fn consume(&mut self, len: usize) {
        self.done += len;
        self.scan = HeadScan::new();
        if self.done == self.filled {
            (self.done, self.filled) = (0, 0);
        }
    }

    /// Adds bytes that were read elsewhere; there must be room for them.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.input[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// Reads more, up to `len_max` unhandled bytes in total; 0 means the end of the stream.
    pub(super) fn poll_fill<S: dapple_io::Connection>(
        &mut self,
        stream: &S,
        len_max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.filled == self.input.len() {
            self.make_room(len_max);
        }
        let len = ready!(stream.poll_read(cx, &mut self.input[self.filled..]))?;
        self.filled += len;
        Poll::Ready(Ok(len))
    }

    fn make_room(&mut self, len_max: usize) {
        if self.done > 0 {
            self.input.copy_within(self.done..self.filled, 0);
            self.filled -= self.done;
            self.done = 0;
        } else {
            let len = (self.input.len() * 2).min(len_max).max(self.input.len() + 1);
            self.input.resize(len, 0);
        }
    }

    /// Empties the workspace. Returns `false` if it has grown too large to keep.
    fn clear(&mut self) -> bool {
        (self.done, self.filled) = (0, 0);
        self.scan = HeadScan::new();
        self.out.clear();
        self.input.len() == INPUT_LEN && self.fields.capacity() <= FIELDS_LEN && self.out.is_small()
    }
}

thread_local! {
    #[expect(clippy::vec_box, reason = "a workspace moves twice for each request, and is large")]
    static POOL: RefCell<Vec<Box<Workspace>>> = const { RefCell::new(Vec::new()) };
}

/// Room for most heads, and for a few dozen requests that arrive together.
const INPUT_LEN: usize = 4 << 10;

/// Browsers send 12 to 20.
const FIELDS_LEN: usize = 32;

/// A worker runs one task at a time, so mostly one workspace is passed around. More are in use
/// while requests wait for the disk or for slow clients.
const POOL_LEN_MAX: usize = 64;
