//! The wakers that wait until the connection can be written.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use dapple_sched::foreign::KeptWaker;

/// The connection keeps one waker for writing, and a reading task may also have to write (answers
/// of the session itself). So that neither replaces the other, both are woken when both wait.
#[derive(Debug, Default)]
pub(crate) struct WriteWakers {
    waiting: [Option<Arc<KeptWaker>>; 2],
    over: Over,
}

/// Wakers to invoke or drop after the stream's lock: they are foreign code, which may call back
/// into the stream.
#[derive(Debug, Default)]
pub(crate) struct Over {
    called: Vec<Arc<KeptWaker>>,
    dropped: Vec<Arc<KeptWaker>>,
}

impl Over {
    pub(crate) fn settle(self) {
        self.called.iter().for_each(|waker| waker.wake_by_ref());
        drop(self.dropped);
    }
}

/// The task that polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Reader,
    Writer,
}

impl WriteWakers {
    /// Polls with a waker that wakes all waiting tasks.
    pub(crate) fn poll<T>(
        &mut self,
        side: Side,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let other = self.waiting[side.other() as usize].as_ref().filter(|other| !other.will_wake(cx.waker()));
        let polled = match other {
            None => poll(cx),
            Some(other) => {
                let both = Waker::from(Arc::new(Both(cx.waker().into(), other.clone())));
                poll(&mut Context::from_waker(&both))
            }
        };
        if polled.is_pending() {
            let own = &mut self.waiting[side as usize];
            if !own.as_ref().is_some_and(|own| own.will_wake(cx.waker())) {
                self.over.dropped.extend(own.replace(Arc::new(cx.waker().into())));
            }
        }
        polled
    }

    /// `side` has found that there is nothing left to write.
    pub(crate) fn drained(&mut self, side: Side) {
        self.over.dropped.extend(self.waiting[side as usize].take());
        self.over.called.extend(self.waiting[side.other() as usize].take());
    }

    /// Takes the work to do without the lock.
    pub(crate) fn take_over(&mut self) -> Over {
        std::mem::take(&mut self.over)
    }
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Reader => Side::Writer,
            Side::Writer => Side::Reader,
        }
    }
}

struct Both(KeptWaker, Arc<KeptWaker>);

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake_by_ref();
        self.1.wake_by_ref();
    }
}
