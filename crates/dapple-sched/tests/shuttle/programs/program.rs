//! The steps of a random program.

use shuttle::rand::Rng;

/// Agents that post from outside, each with its steps in order.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) colors: usize,
    /// How many operations there are, which are numbered.
    pub(super) ops: usize,
    pub(super) agents: Vec<Vec<Op>>,
}

/// A step of an agent, a callback or a task.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) id: usize,
    /// The colors that it holds, each once.
    pub(super) parts: Vec<Part>,
    pub(super) kind: Kind,
    /// The steps while it holds them, or the steps of a task.
    pub(super) inner: Vec<Op>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Part {
    pub(super) color: usize,
    pub(super) reads: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Kind {
    /// Posted.
    Post { priority: u8, panics: bool },
    /// Posted, and canceled at once if it has not started.
    Cancel,
    /// Held in line, if all is free.
    Try,
    /// A task, of the first color for writing, or of a color of its own; aborted at the end of the
    /// agent.
    Task { own_color: bool, aborted: bool },
    /// In a task: awaited.
    Wait,
    /// In a task: polled once, and dropped.
    Drop,
    /// In a task: the others have a turn.
    Yield,
}

impl Program {
    pub(super) fn random(rng: &mut impl Rng) -> Program {
        let mut program = Program { colors: rng.gen_range(3..=4), ops: 0, agents: Vec::new() };
        for _ in 0..2 {
            let ops = (0..rng.gen_range(2..=4)).map(|_| program.op(rng, 0)).collect();
            program.agents.push(ops);
        }
        program
    }

    /// `depth`: the number of callbacks around it.
    fn op(&mut self, rng: &mut impl Rng, depth: usize) -> Op {
        let kind = match rng.gen_range(0..20) {
            0..=10 => {
                Kind::Post { priority: rng.gen_range(0..10u8).saturating_sub(6), panics: rng.gen_range(0..12) == 0 }
            }
            11 => Kind::Cancel,
            12..=13 => Kind::Try,
            _ if depth == 0 => Kind::Task { own_color: rng.gen_bool(0.5), aborted: rng.gen_bool(0.3) },
            _ => Kind::Post { priority: 0, panics: false },
        };
        let mut parts = self.parts(rng);
        let inner = match kind {
            Kind::Task { .. } => (0..rng.gen_range(1..=3)).map(|_| self.step(rng)).collect(),
            Kind::Post { .. } if depth < 2 => {
                let count = [0, 0, 1, 2][rng.gen_range(0..4usize)];
                (0..count).map(|_| self.op(rng, depth + 1)).collect()
            }
            _ => Vec::new(),
        };
        // A set or a reader that unwinds takes locks, which shuttle does not support for threads
        // that unwind.
        if matches!(kind, Kind::Cancel | Kind::Task { .. } | Kind::Post { panics: true, .. }) {
            parts.truncate(1);
            parts[0].reads = false;
        }
        Op { id: self.number(), parts, kind, inner }
    }

    /// A step of a task.
    fn step(&mut self, rng: &mut impl Rng) -> Op {
        let kind = match rng.gen_range(0..10) {
            0..=6 => Kind::Wait,
            7 => Kind::Drop,
            8 => Kind::Yield,
            _ => return self.op(rng, 1),
        };
        Op { parts: self.parts(rng), kind, inner: Vec::new(), id: self.number() }
    }

    fn parts(&self, rng: &mut impl Rng) -> Vec<Part> {
        let count = [1, 1, 2, 2, 3][rng.gen_range(0..5usize)];
        let mut colors: Vec<usize> = (0..self.colors).collect();
        let mut parts: Vec<Part> = (0..count)
            .map(|_| Part {
                color: colors.swap_remove(rng.gen_range(0..colors.len())),
                reads: rng.gen_range(0..3) == 0,
            })
            .collect();
        if count == 3 {
            // Avoids eight types of sets.
            parts[1].reads = parts[0].reads;
        }
        parts
    }

    fn number(&mut self) -> usize {
        self.ops += 1;
        self.ops - 1
    }
}
