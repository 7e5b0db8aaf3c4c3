//! The memory that a connection needs while it does something. Those that wait hold none.

use std::cell::RefCell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::task::{Context, Poll, ready};

use dapple_http::{Field, Found, HeadLimits, HeadScan, Refusal};

use super::outgoing::Outgoing;

/// Buffers for one connection.
pub(super) struct Workspace {
    /// What was read; `filled` of it, of which `done` are dealt with.
    input: Vec<u8>,
    done: usize,
    filled: usize,
    /// Looks for the end of the head that begins at `done`.
    scan: HeadScan,
    /// Empty; keeps its memory from one request to the next.
    pub(super) fields: Vec<Field<'static>>,
    pub(super) out: Outgoing,
}

/// A workspace on loan from the pool of the worker.
pub(super) struct Lease(Option<Box<Workspace>>);

impl Lease {
    pub(super) fn take() -> Lease {
        let pooled = POOL.with_borrow_mut(Vec::pop);
        Lease(Some(pooled.unwrap_or_else(|| Box::new(Workspace::new()))))
    }

    /// One that reads so much at once.
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
        // Where the thread is ending, the pool may be gone; so is the workspace then.
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

    /// What was read and not dealt with.
    pub(super) fn input(&self) -> &[u8] {
        &self.input[self.done..self.filled]
    }

    /// Where the head ends that the input begins with; see [`HeadScan::find`].
    pub(super) fn find_head(&mut self, limits: &HeadLimits) -> Result<Option<Found>, Refusal> {
        self.scan.find(&self.input[self.done..self.filled], limits)
    }

    /// The input and, apart from it, what goes out.
    pub(super) fn split(&mut self) -> (&[u8], &mut Outgoing) {
        (&self.input[self.done..self.filled], &mut self.out)
    }

    /// Deals with so many bytes of the input. What follows is the start of a head.
    pub(super) fn consume(&mut self, len: usize) {
        self.done += len;
        self.scan = HeadScan::new();
        if self.done == self.filled {
            (self.done, self.filled) = (0, 0);
        }
    }

    /// Adds bytes that were read already, for which there is room.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.input[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// Reads more, up to `len_max` bytes in all that are not dealt with; 0 is the end of the stream.
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

    /// Makes it as new. False: it has grown, and is not worth keeping.
    fn clear(&mut self) -> bool {
        (self.done, self.filled) = (0, 0);
        self.scan = HeadScan::new();
        self.out.clear();
        self.input.len() == INPUT_LEN && self.fields.capacity() <= FIELDS_LEN && self.out.is_small()
    }
}

thread_local! {
    #[expect(clippy::vec_box, reason = "a workspace changes hands twice for each request, and is large")]
    static POOL: RefCell<Vec<Box<Workspace>>> = const { RefCell::new(Vec::new()) };
}

/// Room for most heads, and for a few dozen requests that come at once.
const INPUT_LEN: usize = 4 << 10;

/// Browsers send 12 to 20.
const FIELDS_LEN: usize = 32;

/// A worker runs one task at a time: most of the time one workspace goes from hand to hand. More are out while requests wait for the
/// disk or for slow clients.
const POOL_LEN_MAX: usize = 64;
