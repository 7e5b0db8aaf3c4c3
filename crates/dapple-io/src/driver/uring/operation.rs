//! A call as a future.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::ring::{Ring, Token};
use super::{Call, Memory, Request};
use crate::driver::current;
use crate::driver::shut_down_error;
use crate::driver::slot::Slot;

/// Resolves to the kernel's result, and returns the memory. The memory is [`Memory::None`] only if
/// the runtime has ended while the kernel had it.
///
/// Cancel safe: a dropped operation leaves the request with the ring until the kernel is done with
/// it; see the table in `ring`.
pub(crate) struct Operation {
    slot: Arc<Slot>,
    stage: OperationState,
}

enum OperationState {
    /// Handed over in the first poll.
    New(Option<Request>),
    Begun(Token, Call),
    Done,
}

impl Operation {
    pub(super) fn new(slot: Arc<Slot>, request: Request) -> Self {
        Operation { slot, stage: OperationState::New(Some(request)) }
    }

    fn ring(&self) -> &Ring {
        self.slot.ring().expect("operations are made for slots with a ring")
    }
}

impl Future for Operation {
    type Output = (io::Result<u32>, Memory);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match &mut this.stage {
            OperationState::New(request) => {
                let request = request.take().expect("handed over once");
                let call = request.call;
                if let Some(standing) = &this.slot.shared().standing {
                    standing.note_call();
                }
                match this.ring().begin(request, cx.waker()) {
                    Ok(token) => {
                        // The task has moved since it asked for the ring.
                        if !current::owns(&this.slot) {
                            this.slot.unpark();
                        }
                        this.stage = OperationState::Begun(token, call);
                        Poll::Pending
                    }
                    Err(request) => {
                        this.stage = OperationState::Done;
                        Poll::Ready((Err(shut_down_error()), request.memory))
                    }
                }
            }
            OperationState::Begun(token, _) => {
                let token = *token;
                match this.ring().poll(token, cx.waker()) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(ended) => {
                        this.stage = OperationState::Done;
                        let (result, memory) = match ended {
                            Some((result, request)) => (result_of(result), request.memory),
                            None => (Err(shut_down_error()), Memory::None),
                        };
                        Poll::Ready((result, memory))
                    }
                }
            }
            OperationState::Done => panic!("polled after it resolved"),
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if let OperationState::Begun(token, call) = self.stage {
            let has_news = self.ring().abandon(token, call.is_revocable());
            // The owner submits additions between two turns; it must be told of another thread's.
            if has_news && !current::owns(&self.slot) {
                self.slot.unpark();
            }
        }
    }
}

fn result_of(result: i32) -> io::Result<u32> {
    match u32::try_from(result) {
        Ok(value) => Ok(value),
        // An awaiting task does not cancel, so that was the shutdown.
        Err(_) if result == -libc::ECANCELED => Err(shut_down_error()),
        Err(_) => Err(io::Error::from_raw_os_error(-result)),
    }
}
