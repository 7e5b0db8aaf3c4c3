//! The steps of a random program.

/// Each has two states.
pub(crate) const COLORS: usize = 3;

/// The kinds of wakers that panic: when they are woken, cloned, or dropped.
pub(crate) const BOMBS: usize = 3;

/// A state with a color that is held, for writing or for reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Use {
    pub(crate) state: usize,
    pub(crate) reads: bool,
}

impl Use {
    pub(crate) fn color(self) -> usize {
        self.state / 2
    }
}

/// The waker of a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waking {
    /// That of the polling task; on a plain thread, one that does nothing.
    Own,
    Nothing,
    /// One that panics; see [`BOMBS`].
    Bomb(usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// `try_with` or `try_read`, or a set of two; the steps run inside.
    Try(Vec<Use>, Vec<Step>),
    /// Makes a future that waits for the same, polls it once, and keeps it where all agents find
    /// it.
    Start(Vec<Use>, Vec<Step>, Waking),
    /// Polls a kept future, of any agent.
    Poll(usize, Waking),
    /// Drops a kept future, which must then block no others.
    Drop(usize),
    /// Forgets a kept future.
    Forget(usize),
    /// Posts a callback. Its destructor may panic if it does not run.
    Post(Vec<Use>, Vec<Step>, bool),
    /// Spawns a task of a color, or of a separate one; on a thread, waits until it sleeps first.
    Task(Option<usize>, Vec<Step>),
    /// In a task: the poll ends here.
    Sleep,
    /// Another thread runs these steps; the agent waits for it.
    Beside(Vec<Step>),
    /// Stops the runtime, if no closure is open.
    Stop,
    Panic,
}

/// The kinds of steps, for menus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Try,
    Start,
    Poll,
    Drop,
    Forget,
    Post,
    Task,
    Beside,
    Stop,
    Panic,
    /// No step of its own: polls may come with wakers that panic, and posts with destructors that
    /// panic.
    Bombs,
    /// No step: holds may be for reading.
    Reads,
}

/// Several agents, each with its steps in order.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) agents: Vec<Vec<Step>>,
    /// Some color may be held for ever.
    pub(crate) forgets: bool,
}

impl Program {
    /// `menu`: the kinds of steps, repeated for a higher weight; `roll`: a die with this many
    /// sides.
    pub(crate) fn random(agents: usize, menu: &[Op], roll: &mut dyn FnMut(usize) -> usize) -> Program {
        let ops: Vec<Op> = menu.iter().copied().filter(|op| !matches!(op, Op::Bombs | Op::Reads)).collect();
        let mut cook = Cook { ops, bombs: menu.contains(&Op::Bombs), reads: menu.contains(&Op::Reads), roll };
        let agents = (0..agents).map(|_| cook.steps(0)).collect();
        Program { agents, forgets: menu.contains(&Op::Forget) }
    }
}

/// Makes steps.
struct Cook<'a> {
    ops: Vec<Op>,
    bombs: bool,
    reads: bool,
    roll: &'a mut dyn FnMut(usize) -> usize,
}

impl Cook<'_> {
    fn steps(&mut self, depth: usize) -> Vec<Step> {
        let most = [7, 4, 3, 2][depth.min(3)];
        (0..(self.roll)(most)).map(|_| self.step(depth + 1)).collect()
    }

    fn step(&mut self, depth: usize) -> Step {
        match self.ops[(self.roll)(self.ops.len())] {
            Op::Try => Step::Try(self.uses(), self.steps(depth)),
            Op::Start => Step::Start(self.uses(), self.steps(depth), self.waking()),
            Op::Poll => Step::Poll((self.roll)(4), self.waking()),
            Op::Drop => Step::Drop((self.roll)(4)),
            Op::Forget => Step::Forget((self.roll)(4)),
            Op::Post => Step::Post(self.uses(), self.steps(depth), self.bombs && (self.roll)(4) == 1),
            Op::Task => Step::Task((0..COLORS).nth((self.roll)(2 * COLORS)), self.poll_by_poll(depth)),
            Op::Beside => Step::Beside(self.steps(depth)),
            Op::Stop => Step::Stop,
            Op::Panic => Step::Panic,
            Op::Bombs | Op::Reads => unreachable!("not a step"),
        }
    }

    /// The steps of a task; many steps are separate polls.
    fn poll_by_poll(&mut self, depth: usize) -> Vec<Step> {
        let steps = self.steps(depth);
        steps.into_iter().flat_map(|step| [Some(step), ((self.roll)(3) > 0).then_some(Step::Sleep)]).flatten().collect()
    }

    /// One state, or two different ones.
    fn uses(&mut self) -> Vec<Use> {
        let mut uses = vec![self.one_use()];
        if (self.roll)(2) == 1 {
            let other = self.one_use();
            uses.extend((other.state != uses[0].state).then_some(other));
        }
        uses
    }

    fn one_use(&mut self) -> Use {
        Use { state: [0, 1, 0, 1, 2, 3, 4, 5][(self.roll)(8)], reads: self.reads && (self.roll)(2) == 1 }
    }

    fn waking(&mut self) -> Waking {
        match (self.roll)(4) {
            0 => Waking::Nothing,
            1 | 2 if self.bombs => Waking::Bomb((self.roll)(BOMBS)),
            _ => Waking::Own,
        }
    }
}
