//! Every short program of a slot's operations, compared step by step with a model: two lines, and
//! one value.
//!
//! All orders in which futures can be started, polled and dropped, and be granted a turn that they
//! do not use. The model in `tests/shuttle.rs` covers threads that interrupt a poll.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use dapple_sync::sync::Slot;

/// The steps of a program. `Drop…` and `Poll…` act on the first or last future that was started and
/// is not over.
#[derive(Clone, Copy, Debug)]
enum Step {
    Take,
    Read,
    Put,
    TryTake,
    TryPut,
    PollFirst,
    PollLast,
    DropFirst,
    DropLast,
}

const STEPS: [Step; 9] = [
    Step::Take,
    Step::Read,
    Step::Put,
    Step::TryTake,
    Step::TryPut,
    Step::PollFirst,
    Step::PollLast,
    Step::DropFirst,
    Step::DropLast,
];

/// Programs of this many steps: 9^6 = 531,441.
const LENGTH: u32 = 6;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Take,
    Read,
    Put(u32),
}

/// The result of a step or a poll.
#[derive(Debug, PartialEq)]
enum Seen {
    Waits,
    Value(u32),
    IsPut,
    Refused,
    Nothing,
}

/// The model of a slot: the first waiter in each line is next, as soon as there is a value or room
/// for it.
#[derive(Default)]
struct Model {
    value: Option<u32>,
    /// Numbers of futures that take or read, and of those that put.
    wants: VecDeque<(u32, Kind)>,
    gives: VecDeque<(u32, Kind)>,
}

impl Model {
    fn start(&mut self, id: u32, kind: Kind) -> Seen {
        self.line(kind).push_back((id, kind));
        self.poll(id, kind)
    }

    fn line(&mut self, kind: Kind) -> &mut VecDeque<(u32, Kind)> {
        match kind {
            Kind::Put(_) => &mut self.gives,
            _ => &mut self.wants,
        }
    }

    fn poll(&mut self, id: u32, kind: Kind) -> Seen {
        let first = self.line(kind).front().is_some_and(|(first, _)| *first == id);
        let seen = match (first, kind, self.value) {
            (true, Kind::Take, Some(value)) => {
                self.value = None;
                Seen::Value(value)
            }
            (true, Kind::Read, Some(value)) => Seen::Value(value),
            (true, Kind::Put(value), None) => {
                self.value = Some(value);
                Seen::IsPut
            }
            _ => return Seen::Waits,
        };
        self.line(kind).pop_front();
        seen
    }

    fn drop(&mut self, id: u32, kind: Kind) {
        self.line(kind).retain(|(other, _)| *other != id);
    }

    fn try_take(&mut self) -> Seen {
        if self.wants.is_empty() { self.value.take().map_or(Seen::Nothing, Seen::Value) } else { Seen::Nothing }
    }

    fn try_put(&mut self, value: u32) -> Seen {
        if !self.gives.is_empty() || self.value.is_some() {
            return Seen::Refused;
        }
        self.value = Some(value);
        Seen::IsPut
    }
}

type Waiting<'slot> = (u32, Kind, Pin<Box<dyn Future<Output = Seen> + 'slot>>);

fn start(slot: &Slot<u32>, id: u32, kind: Kind) -> Waiting<'_> {
    let future: Pin<Box<dyn Future<Output = Seen>>> = match kind {
        Kind::Take => Box::pin(async { Seen::Value(slot.take().await) }),
        Kind::Read => Box::pin(async { Seen::Value(slot.read().await) }),
        Kind::Put(value) => Box::pin(async move {
            slot.put(value).await;
            Seen::IsPut
        }),
    };
    (id, kind, future)
}

fn poll(waiting: &mut Waiting<'_>) -> Seen {
    match waiting.2.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(seen) => seen,
        Poll::Pending => Seen::Waits,
    }
}

fn run(program: &[Step]) {
    let slot = Slot::empty();
    let mut model = Model::default();
    let mut waiting: Vec<Waiting<'_>> = Vec::new();
    for (index, step) in program.iter().enumerate() {
        let id = index as u32;
        let kind = match step {
            Step::Take => Some(Kind::Take),
            Step::Read => Some(Kind::Read),
            Step::Put => Some(Kind::Put(id)),
            _ => None,
        };
        let chosen = match step {
            Step::PollFirst | Step::DropFirst => 0,
            _ => waiting.len().saturating_sub(1),
        };
        let (seen, expected) = match (step, kind) {
            (_, Some(kind)) => {
                let mut started = start(&slot, id, kind);
                let seen = poll(&mut started);
                if seen == Seen::Waits {
                    waiting.push(started);
                }
                (seen, model.start(id, kind))
            }
            (Step::TryTake, _) => (slot.try_take().map_or(Seen::Nothing, Seen::Value), model.try_take()),
            (Step::TryPut, _) => (slot.try_put(id).map_or(Seen::Refused, |()| Seen::IsPut), model.try_put(id)),
            _ if waiting.is_empty() => return,
            (Step::PollFirst | Step::PollLast, _) => {
                let (id, kind, _) = waiting[chosen];
                let seen = poll(&mut waiting[chosen]);
                if seen != Seen::Waits {
                    drop(waiting.remove(chosen));
                }
                (seen, model.poll(id, kind))
            }
            _ => {
                let (id, kind, future) = waiting.remove(chosen);
                drop(future);
                model.drop(id, kind);
                continue;
            }
        };
        assert_eq!(seen, expected, "step {index} of {program:?}");
        assert_eq!(slot.is_empty(), model.value.is_none(), "after step {index} of {program:?}");
    }
    drop(waiting);
    assert_eq!(slot.into_inner(), model.value, "after {program:?}");
}

#[test]
fn all_short_programs_do_as_the_model_does() {
    let mut program = [STEPS[0]; LENGTH as usize];
    for number in 0..(STEPS.len() as u32).pow(LENGTH) {
        let mut rest = number as usize;
        for step in &mut program {
            *step = STEPS[rest % STEPS.len()];
            rest /= STEPS.len();
        }
        run(&program);
    }
}
