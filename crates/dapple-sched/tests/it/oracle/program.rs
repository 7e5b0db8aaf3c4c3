//! Random programs: agents that post, hold, and wait, from outside, in callbacks and in tasks.

use proptest::prelude::*;

use crate::nested::BOMBS;

pub(super) const COLORS: usize = 4;

/// A step of an agent.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) id: usize,
    /// The colors that it holds, each once; for a task, the first one is its own.
    pub(super) parts: Vec<Part>,
    pub(super) kind: Kind,
    /// Its steps while it runs.
    pub(super) inner: Vec<Op>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) color: usize,
    pub(super) reads: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Posted, to one color or to several.
    Post { priority: u8, panics: bool },
    /// Posted to one color; refused if that is full.
    TryPost,
    /// Posted to one color; canceled at once, if it has not started.
    Cancel,
    /// Held in line, if all colors are free, or if its agent holds all of them already.
    Hold,
    /// A wait that is polled once, even inside of callbacks, and then dropped. `bomb`: with a waker
    /// that panics.
    Glance { bomb: Option<usize> },
    /// The same, but then moved to a task, which awaits it.
    Moved { bomb: Option<usize> },
    /// A task, of one of the colors or of a fresh one, aborted at the end of its agent.
    Task { fresh: bool, aborted: bool },
    /// In a task: awaited.
    Wait,
}

impl Op {
    pub(super) fn writes(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().filter(|part| !part.reads).map(|part| part.color)
    }

    /// Whether `holder` holds none of this closure's colors. If it holds one, this closure runs as
    /// a part of `holder`.
    pub(super) fn is_apart_from(&self, holder: &[Part]) -> bool {
        self.parts.iter().all(|part| holder.iter().all(|held| held.color != part.color))
    }

    /// Done in line, perhaps inside of a callback that holds its colors.
    pub(super) fn may_be_nested(&self) -> bool {
        matches!(self.kind, Kind::Hold | Kind::Glance { .. } | Kind::Moved { .. })
    }

    /// Whether all of its colors are held by `holder` already.
    pub(super) fn is_part_of(&self, holder: &[Part]) -> bool {
        self.parts.iter().all(|part| holder.iter().any(|held| held.color == part.color))
    }

    /// Whether `holder`, which holds all of them, may hold them again.
    pub(super) fn may_nest_in(&self, holder: &[Part]) -> bool {
        self.parts.iter().all(|part| holder.iter().any(|held| held.color == part.color && (part.reads || !held.reads)))
    }

    /// The waker of its poll panics at some time.
    pub(super) fn has_bomb(&self) -> bool {
        matches!(self.kind, Kind::Glance { bomb: Some(_) } | Kind::Moved { bomb: Some(_) })
            || self.inner.iter().any(Op::has_bomb)
    }

    pub(super) fn panics(&self) -> bool {
        matches!(self.kind, Kind::Post { panics: true, .. })
    }

    /// The colors that a task holds whenever it is polled.
    pub(super) fn own_color(&self) -> &[Part] {
        if let Kind::Task { fresh: false, .. } = self.kind { &self.parts[..1] } else { &[] }
    }
}

/// Numbers the operations; returns how many there are.
pub(super) fn number(ops: &mut [Op], mut count: usize) -> usize {
    for op in ops {
        op.id = count;
        count = number(&mut op.inner, count + 1);
    }
    count
}

pub(super) fn index<'a>(ops: &'a [Op], by_id: &mut Vec<Option<&'a Op>>) {
    for op in ops {
        by_id[op.id] = Some(op);
        index(&op.inner, by_id);
    }
}

/// One to three different colors.
fn parts() -> impl Strategy<Value = Vec<Part>> {
    let colors = prop::sample::subsequence((0..COLORS).collect::<Vec<_>>(), 1..=3).prop_shuffle();
    (colors, prop::collection::vec(prop::bool::weighted(0.35), 3)).prop_map(|(colors, reads)| {
        // If there are three states, the second one's mode is that of the first, which saves eight
        // types of sets.
        let second = if colors.len() == 3 { 0 } else { 1 };
        let modes = [reads[0], reads[second], reads[2]];
        colors.into_iter().zip(modes).map(|(color, reads)| Part { color, reads }).collect()
    })
}

fn op(kind: Kind, mut parts: Vec<Part>) -> Op {
    if matches!(kind, Kind::TryPost | Kind::Cancel | Kind::Task { .. }) {
        parts.truncate(1);
        parts[0].reads = false;
    }
    Op { id: 0, parts, kind, inner: Vec::new() }
}

fn bomb() -> impl Strategy<Value = Option<usize>> {
    prop::option::weighted(0.3, 0..BOMBS)
}

fn leaf() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![
        6 => (0u8..3, prop::bool::weighted(0.08)).prop_map(|(priority, panics)| Kind::Post { priority, panics }),
        2 => Just(Kind::TryPost),
        2 => Just(Kind::Cancel),
        2 => Just(Kind::Hold),
        1 => bomb().prop_map(|bomb| Kind::Glance { bomb }),
        1 => bomb().prop_map(|bomb| Kind::Moved { bomb }),
    ];
    (kind, parts()).prop_map(|(kind, parts)| op(kind, parts))
}

fn task() -> impl Strategy<Value = Op> {
    let wait = parts().prop_map(|parts| op(Kind::Wait, parts));
    let step = prop_oneof![3 => wait, 1 => leaf()];
    (any::<bool>(), prop::bool::weighted(0.3), parts(), prop::collection::vec(step, 1..4)).prop_map(
        |(fresh, aborted, parts, inner)| {
            let task = op(Kind::Task { fresh, aborted }, parts);
            // It holds its own color whenever it is polled, so its steps there have no place in the
            // order.
            let inner = inner.into_iter().filter(|step| step.is_apart_from(task.own_color())).collect();
            Op { inner, ..task }
        },
    )
}

/// The steps of one agent; `tasks`: it may also start tasks that wait.
pub(super) fn agent(tasks: bool) -> impl Strategy<Value = Vec<Op>> {
    let nested = leaf().prop_recursive(3, 16, 3, |inner| {
        (leaf(), prop::collection::vec(inner, 0..4)).prop_map(|(op, inner)| {
            // Holds in line, and waits, have no further steps.
            if matches!(op.kind, Kind::Hold | Kind::Glance { .. } | Kind::Moved { .. }) {
                op
            } else {
                Op { inner, ..op }
            }
        })
    });
    // A weight of 0 is not allowed.
    let other = if tasks { task().boxed() } else { leaf().boxed() };
    prop::collection::vec(prop_oneof![4 => nested, 1 => other], 0..12)
}
