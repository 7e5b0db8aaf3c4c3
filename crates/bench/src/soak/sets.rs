//! Several colors at once, in all shapes of a set.

use super::book::Kind;
use super::lane::{Entry, Lane, Mode};
use super::life::Life;
use super::ops::{follow, note, seed, unpack};
use super::state::{State, Value};
use super::token::{SetToken, Waiting};
use crate::rng::Rng;
use dapple_sched::{Color, Colored, Priority, Reading, ReadingColor, when};
use std::pin::Pin;
use std::sync::Arc;

/// A closure's access to one member.
pub(crate) enum Access<'a> {
    Write(&'a mut Value),
    Read(&'a Value),
}

/// The members of a set, drawn at random: at most four states in a tuple, more in a vector.
pub(crate) struct Members {
    shape: usize,
    states: Vec<State>,
    colors: Vec<(Arc<Lane>, Color)>,
}

/// Parts of the members, in the form that `when` takes.
struct Parts<'a> {
    shape: usize,
    writing: Vec<&'a Colored<Value>>,
    reading: Vec<Reading<'a, Value>>,
    colors: Vec<&'a Color>,
    reading_colors: Vec<ReadingColor<'a>>,
}

/// Expands `$go!(set, pattern of the closure's arguments, accesses)` for the drawn shape. The
/// shapes are types, so the macro must name each.
macro_rules! each_shape {
    ($parts:ident, $go:ident) => {{
        use Access::{Read as R, Write as W};
        let (w, r, c, rc) = (&$parts.writing, &$parts.reading, &$parts.colors, &$parts.reading_colors);
        match $parts.shape {
            0 => $go!((w[0], w[1]), (a, b), vec![W(a), W(b)]),
            1 => $go!((w[0], r[1]), (a, b), vec![W(a), R(b)]),
            2 => $go!((r[0], r[1], w[2]), (a, b, d), vec![R(a), R(b), W(d)]),
            3 => $go!((c[0], w[0]), ((), a), vec![W(a)]),
            4 => $go!((rc[0], w[0], c[1], r[1]), ((), a, (), b), vec![W(a), R(b)]),
            5 => $go!((w[0], w[1], w[2], w[3]), (a, b, d, e), vec![W(a), W(b), W(d), W(e)]),
            6 => $go!((r[0], r[1]), (a, b), vec![R(a), R(b)]),
            7 => $go!(w, many, many.into_iter().map(W).collect()),
            8 => $go!(r, many, many.into_iter().map(R).collect()),
            9 => $go!(c, _many, Vec::new()),
            _ => $go!(rc, _many, Vec::new()),
        }
    }};
}

/// For each shape: the numbers of states and colors, and for each member its mode, states first.
const SHAPES: [(usize, usize, &[Mode]); 11] = {
    use Mode::{Read as R, Write as W};
    [
        (2, 0, &[W, W]),
        (2, 0, &[W, R]),
        (3, 0, &[R, R, W]),
        (1, 1, &[W, W]),
        (2, 2, &[W, R, R, W]),
        (4, 0, &[W, W, W, W]),
        (2, 0, &[R, R]),
        (12, 0, &[W; 12]),
        (12, 0, &[R; 12]),
        (0, 6, &[W; 6]),
        (0, 6, &[R; 6]),
    ]
};

/// The shapes from here on take any number.
const FIRST_VECTOR: usize = 7;

impl Members {
    pub(crate) fn draw(life: &Life, rng: &mut Rng) -> Members {
        let mut shape = rng.index(SHAPES.len());
        if SHAPES[shape].0 > life.states.len() && shape < FIRST_VECTOR {
            shape = FIRST_VECTOR;
        }
        let (mut states, mut colors, _) = SHAPES[shape];
        if shape >= FIRST_VECTOR {
            states = rng.range(0, states as u64) as usize;
            colors = rng.range(0, colors as u64) as usize;
        }
        let colors = (0..colors).map(|_| life.pick_color(rng)).collect();
        Members { shape, states: life.pick_states(states, rng), colors }
    }

    fn token(&self, life: &Life, kind: Kind) -> SetToken {
        let lanes = self.states.iter().map(|state| &state.lane).chain(self.colors.iter().map(|(lane, _)| lane));
        let lanes: Vec<_> = lanes.cloned().zip(SHAPES[self.shape].2.iter().copied()).collect();
        SetToken::new(&life.lanes[0], kind, &lanes)
    }

    fn parts(&self) -> Parts<'_> {
        Parts {
            shape: self.shape,
            writing: self.states.iter().map(|state| &state.state).collect(),
            reading: self.states.iter().map(|state| state.state.reading()).collect(),
            colors: self.colors.iter().map(|(_, color)| color).collect(),
            reading_colors: self.colors.iter().map(|(_, color)| color.reading()).collect(),
        }
    }
}

/// Uses the members while they are held.
fn touch(accesses: Vec<Access<'_>>, life: &Life, rng: &mut Rng) {
    for access in accesses {
        match access {
            Access::Write(value) => {
                if life.panics(rng) {
                    value.tear();
                }
                value.write(rng);
            }
            Access::Read(value) => value.read(rng),
        }
    }
}

pub(crate) fn post(life: &Arc<Life>, rng: &mut Rng, fuel: u8) {
    let members = Members::draw(life, rng);
    let (parts, life, seed) = (members.parts(), life.clone(), seed(rng, fuel));
    let priority = Priority::new(rng.below(8) as u8);
    let token = members.token(&life, Kind::SetPost);
    let run = move |token: SetToken, accesses: Vec<Access<'_>>| {
        token.run(Entry::Turn, || {
            let (mut rng, fuel) = unpack(seed);
            touch(accesses, &life, &mut rng);
            follow(&life, &mut rng, fuel);
        });
    };
    macro_rules! go {
        ($set:expr, $given:pat, $accesses:expr) => {
            when($set).priority(priority).post(move |$given| run(token, $accesses))
        };
    }
    each_shape!(parts, go);
}

pub(crate) fn try_with(life: &Life, rng: &mut Rng) {
    let members = Members::draw(life, rng);
    let parts = members.parts();
    let token = members.token(life, Kind::SetTry);
    let mut run = |token: SetToken, accesses: Vec<Access<'_>>| token.run(Entry::Inline, || touch(accesses, life, rng));
    macro_rules! go {
        ($set:expr, $given:pat, $accesses:expr) => {
            when($set).try_with(|$given| run(token, $accesses))
        };
    }
    let outcome = each_shape!(parts, go);
    note(life, Kind::SetTry, outcome);
}

/// Blocks until all members are held.
pub(crate) fn with_blocking(life: &Life, rng: &mut Rng) {
    let members = Members::draw(life, rng);
    let parts = members.parts();
    let token = members.token(life, Kind::SetBlocking);
    let mut run = |token: SetToken, accesses: Vec<Access<'_>>| token.run(Entry::Inline, || touch(accesses, life, rng));
    macro_rules! go {
        ($set:expr, $given:pat, $accesses:expr) => {
            when($set).with_blocking(|$given| run(token, $accesses))
        };
    }
    each_shape!(parts, go);
}

/// Awaits all members.
pub(crate) fn with<'a>(
    members: &'a Members,
    life: &'a Life,
    mut rng: Rng,
) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
    let parts = members.parts();
    let token = members.token(life, Kind::SetWith);
    let waiting = Waiting::new(token.book(), Kind::SetWith);
    let mut run =
        move |token: SetToken, accesses: Vec<Access<'_>>| token.run(Entry::Inline, || touch(accesses, life, &mut rng));
    Box::pin(async move {
        macro_rules! go {
            ($set:expr, $given:pat, $accesses:expr) => {
                when($set).with(move |$given| run(token, $accesses)).await
            };
        }
        each_shape!(parts, go);
        waiting.over();
    })
}
