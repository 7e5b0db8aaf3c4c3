//! Threads that are not workers: those in `block_on`, and those that run a function of the blocking
//! pool.

use std::cell::RefCell;
use std::ptr;
use std::sync::Arc;

use dapple_sched::Outside;

use super::{Standing, State};
use crate::driver::Shared;

/// A call that ends by itself, in real time. The clock stands while this exists.
pub(crate) struct Call {
    shared: Arc<Shared>,
}

impl Call {
    /// `None` if the clock is the real one, which needs no count.
    pub(crate) fn begin(shared: &Arc<Shared>) -> Option<Call> {
        let standing = shared.standing.as_ref()?;
        let mut state = standing.state.lock();
        state.calls += 1;
        state.call_changes += 1;
        drop(state);
        Some(Call { shared: shared.clone() })
    }

    /// Runs the call. While it waits in `block_on`, it does not count as a call.
    pub(crate) fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        struct Pop;
        impl Drop for Pop {
            fn drop(&mut self) {
                with_roles(|roles| roles.pop());
            }
        }
        with_roles(|roles| {
            roles.push((id(self.standing()), Role::Call));
            None::<()>
        });
        let _pop = Pop;
        f()
    }

    fn standing(&self) -> &Standing {
        self.shared.standing.as_ref().expect("calls are counted only by a standing clock")
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let standing = self.standing();
        let mut state = standing.state.lock();
        state.calls -= 1;
        state.call_changes += 1;
        standing.unlock_and_nudge(state);
    }
}

impl Standing {
    pub(crate) fn outside(&self, news: Outside) {
        let mut state = self.state.lock();
        match news {
            Outside::Waits => state.busy -= 1,
            Outside::Woken => state.add_busy(),
            // A nested `block_on`: the thread is counted already.
            Outside::Begins => match self.push_block_on() {
                Some(Role::BlockOn) => {}
                before => {
                    state.add_busy();
                    state.swap_call(before, false);
                }
            },
            Outside::Ends => match self.pop_block_on() {
                Some(Role::BlockOn) => {}
                before => {
                    state.busy -= 1;
                    state.swap_call(before, true);
                }
            },
        }
        self.unlock_and_nudge(state);
    }

    /// Returns the thread's former role.
    fn push_block_on(&self) -> Option<Role> {
        with_roles(|roles| {
            let before = innermost(roles, id(self));
            roles.push((id(self), Role::BlockOn));
            before
        })
    }

    /// Returns the thread's role after that.
    fn pop_block_on(&self) -> Option<Role> {
        with_roles(|roles| {
            let position = roles.iter().rposition(|role| *role == (id(self), Role::BlockOn));
            position.map(|position| roles.remove(position));
            innermost(roles, id(self))
        })
    }
}

impl State {
    /// Counts that a thread in a call becomes busy, or goes `back` into the call.
    fn swap_call(&mut self, call: Option<Role>, back: bool) {
        if call.is_some() {
            self.calls = if back { self.calls + 1 } else { self.calls - 1 };
            self.call_changes += 1;
        }
    }
}

/// The role of a thread for a clock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    BlockOn,
    Call,
}

/// Also `None` if the thread is ending and its locals were dropped: both ends of a `block_on` see
/// the same then.
fn with_roles<R>(f: impl FnOnce(&mut Vec<(usize, Role)>) -> Option<R>) -> Option<R> {
    ROLES.try_with(|roles| f(&mut roles.borrow_mut())).ok().flatten()
}

fn innermost(roles: &[(usize, Role)], id: usize) -> Option<Role> {
    roles.iter().rev().find(|(standing, _)| *standing == id).map(|(_, role)| *role)
}

fn id(standing: &Standing) -> usize {
    ptr::from_ref(standing).addr()
}

thread_local! {
    /// The roles of this thread, the innermost last. There may be several runtimes.
    static ROLES: RefCell<Vec<(usize, Role)>> = const { RefCell::new(Vec::new()) };
}
