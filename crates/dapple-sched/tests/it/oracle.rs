//! A short sequential model of the scheduler, as oracle: random programs run on the real one, and the model must be
//! able to replay what they did.
//!
//! Seen to catch: an inbox that is taken in without being turned round, so that what came last runs first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::Sender;

use dapple_sched::{Color, Colored, PostError, Runtime, SeededRandom};
use proptest::prelude::*;

use crate::support::collector;

/// One callback of a program, and what it posts when it runs.
#[derive(Clone, Debug)]
struct Op {
    id: usize,
    color: usize,
    kind: Kind,
    panics: bool,
    inner: Vec<Op>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Post,
    /// Refused where the color is full.
    TryPost,
    /// Taken back at once, if it has not started.
    Cancel,
    /// Besides, the poster tries to hold the color.
    Hold,
}

/// What a poster learned of his callback.
const RUNS: u8 = 1;
const REFUSED: u8 = 2;
const CANCELED: u8 = 3;

const COLORS: usize = 3;

/// The sequential model: one fifo per color, agents that post (plain threads and running callbacks), one step at a
/// time. It follows the order that was observed in each color, and gets stuck if no sequential execution has it.
struct Model<'a> {
    /// Per color, the callbacks in the order in which they ran.
    observed: &'a [Vec<usize>],
    fates: &'a [u8],
    /// How many of `observed` are in the fifo or have left it, and how many have left it.
    accepted: [usize; COLORS],
    started: [usize; COLORS],
    /// The running callback of each color, and what it has yet to post.
    running: [Option<&'a [Op]>; COLORS],
    posters: Vec<&'a [Op]>,
    /// Per color: callbacks that used the account, and whether one of them has panicked.
    account: [(usize, bool); COLORS],
}

impl<'a> Model<'a> {
    fn replay(program: &'a [Vec<Op>], observed: &'a [Vec<usize>], fates: &'a [u8]) -> Model<'a> {
        let mut by_id = vec![None; fates.len()];
        program.iter().for_each(|ops| index(ops, &mut by_id));
        let mut model = Model {
            observed,
            fates,
            accepted: [0; COLORS],
            started: [0; COLORS],
            running: [None; COLORS],
            posters: program.iter().map(Vec::as_slice).collect(),
            account: [(0, false); COLORS],
        };
        // A step never makes another one impossible, so any order of steps will do.
        while model.step(&by_id) {}
        model
    }

    fn step(&mut self, by_id: &[Option<&'a Op>]) -> bool {
        let mut moved = false;
        for poster in 0..self.posters.len() {
            let rest = self.post(self.posters[poster]);
            moved |= rest.len() != self.posters[poster].len();
            self.posters[poster] = rest;
        }
        for color in 0..COLORS {
            match self.running[color] {
                None if self.started[color] < self.accepted[color] => {
                    let op = by_id[self.observed[color][self.started[color]]].expect("it was in the program");
                    self.started[color] += 1;
                    let (uses, poisoned) = &mut self.account[color];
                    if !*poisoned {
                        *uses += 1;
                        *poisoned = op.panics;
                    }
                    self.running[color] = Some(&op.inner);
                    moved = true;
                }
                None => {}
                Some([]) => {
                    self.running[color] = None;
                    moved = true;
                }
                Some(ops) => {
                    let rest = self.post(ops);
                    moved |= rest.len() != ops.len();
                    self.running[color] = Some(rest);
                }
            }
        }
        moved
    }

    /// Accepts what the observed order accepts next; returns what is left.
    fn post(&mut self, mut ops: &'a [Op]) -> &'a [Op] {
        while let [op, rest @ ..] = ops {
            if self.fates[op.id] == RUNS {
                if self.observed[op.color].get(self.accepted[op.color]) != Some(&op.id) {
                    break;
                }
                self.accepted[op.color] += 1;
            }
            ops = rest;
        }
        ops
    }

    fn is_stuck(&self) -> bool {
        (0..COLORS).any(|color| self.started[color] < self.observed[color].len() || self.running[color].is_some())
            || self.posters.iter().any(|ops| !ops.is_empty())
    }
}

fn index<'a>(ops: &'a [Op], by_id: &mut Vec<Option<&'a Op>>) {
    for op in ops {
        by_id[op.id] = Some(op);
        index(&op.inner, by_id);
    }
}

/// What the callbacks of a running program share.
struct World {
    colors: Vec<Color>,
    observed: Vec<Colored<Vec<usize>>>,
    account: Vec<Colored<usize>>,
    holds: Vec<Colored<usize>>,
    holds_granted: AtomicUsize,
    fates: Vec<AtomicU8>,
}

/// Posts what an agent posts, in order. `alive` goes when all is over.
fn post_all(world: &Arc<World>, ops: &[Op], alive: &Sender<()>) {
    for op in ops {
        let color = &world.colors[op.color];
        let callback = {
            let (world, op, alive) = (world.clone(), op.clone(), alive.clone());
            move || run(&world, &op, &alive)
        };
        let fate = match op.kind {
            Kind::Post => {
                color.post(callback);
                RUNS
            }
            Kind::TryPost => match color.try_post(callback) {
                Ok(()) => RUNS,
                Err(PostError::Full(_)) => REFUSED,
                Err(other) => panic!("{other:?}"),
            },
            Kind::Cancel => {
                if color.post_cancellable(callback).cancel() {
                    CANCELED
                } else {
                    RUNS
                }
            }
            Kind::Hold => {
                color.post(callback);
                if world.holds[op.color].try_with(|count| *count += 1).is_ok() {
                    world.holds_granted.fetch_add(1, SeqCst);
                }
                RUNS
            }
        };
        world.fates[op.id].store(fate, SeqCst);
    }
}

fn run(world: &Arc<World>, op: &Op, alive: &Sender<()>) {
    world.observed[op.color].try_with(|observed| observed.push(op.id)).expect("its callback holds it");
    post_all(world, &op.inner, alive);
    let _ = world.account[op.color].try_with(|uses| {
        *uses += 1;
        if op.panics {
            // Not `panic!`, whose hook would print.
            std::panic::resume_unwind(Box::new("as the program says"));
        }
    });
}

/// `seed`: of a policy that picks colors at random.
fn check(workers: usize, mut program: Vec<Vec<Op>>, capacity: Option<usize>, seed: Option<u64>) {
    let mut count = 0;
    program.iter_mut().for_each(|ops| number(ops, &mut count));
    let mut builder = Runtime::builder().workers(workers).panic_handler(|_| ());
    if let Some(seed) = seed {
        builder = builder.policy(move |worker| Box::new(SeededRandom::new(seed ^ worker as u64)));
    }
    let runtime = builder.build().unwrap();
    let _entered = runtime.enter();
    let colors: Vec<Color> = (0..COLORS).map(|_| Color::new()).collect();
    // Only the first color is ever full.
    colors[0].set_capacity(capacity);
    let world = Arc::new(World {
        observed: colors.iter().map(|color| Colored::with_color(Vec::new(), color)).collect(),
        account: colors.iter().map(|color| Colored::with_color(0, color)).collect(),
        holds: colors.iter().map(|color| Colored::with_color(0, color)).collect(),
        colors,
        holds_granted: AtomicUsize::new(0),
        fates: (0..count).map(|_| AtomicU8::new(0)).collect(),
    });
    let (alive, all_over) = collector();
    std::thread::scope(|scope| {
        for ops in &program {
            let (world, alive) = (&world, alive.clone());
            scope.spawn(move || post_all(world, ops, &alive));
        }
    });
    drop(alive);
    all_over.all();

    let fates: Vec<u8> = world.fates.iter().map(|fate| fate.load(SeqCst)).collect();
    let observed: Vec<Vec<usize>> = world.observed.iter().map(|ids| ids.with_blocking(|ids| ids.clone())).collect();
    let model = Model::replay(&program, &observed, &fates);
    assert!(!model.is_stuck(), "no sequential execution runs {observed:?} with fates {fates:?}");
    for color in 0..COLORS {
        let account = &world.account[color];
        let poisoned = account.is_poisoned();
        account.clear_poison();
        assert_eq!((account.with_blocking(|uses| *uses), poisoned), model.account[color]);
    }
    let panics: u64 = runtime.handle().stats().workers.iter().map(|worker| worker.panics).sum();
    assert_eq!(panics, model.account.iter().filter(|(_, poisoned)| *poisoned).count() as u64);
    let holds: usize = world.holds.iter().map(|count| count.with_blocking(|count| *count)).sum();
    assert_eq!(holds, world.holds_granted.load(SeqCst));
    check_refusals(&program, &fates, capacity);
}

/// Refused is what may be refused, and nothing else.
fn check_refusals(ops: &[Vec<Op>], fates: &[u8], capacity: Option<usize>) {
    for op in ops.iter().flatten() {
        let may_be_full = op.kind == Kind::TryPost && op.color == 0 && capacity.is_some();
        match fates[op.id] {
            REFUSED => assert!(may_be_full, "{op:?} was refused"),
            CANCELED => assert_eq!(op.kind, Kind::Cancel),
            // What stands inside of a callback that did not run was not posted.
            0 => continue,
            _ => assert!(!may_be_full || capacity != Some(0), "{op:?} went over the capacity"),
        }
        if fates[op.id] == RUNS {
            check_refusals(std::slice::from_ref(&op.inner), fates, capacity);
        }
    }
}

fn number(ops: &mut [Op], count: &mut usize) {
    for op in ops {
        op.id = *count;
        *count += 1;
        number(&mut op.inner, count);
    }
}

fn op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![
        4 => Just(Kind::Post), 2 => Just(Kind::TryPost), 2 => Just(Kind::Cancel), 1 => Just(Kind::Hold)
    ];
    let leaf = (0..COLORS, kind, prop::bool::weighted(0.05)).prop_map(|(color, kind, panics)| Op {
        id: 0,
        color,
        kind,
        panics,
        inner: Vec::new(),
    });
    leaf.clone().prop_recursive(3, 24, 4, move |inner| {
        (leaf.clone(), prop::collection::vec(inner, 0..4)).prop_map(|(op, inner)| Op { inner, ..op })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn random_programs_have_a_sequential_execution(
        workers in 1usize..9,
        program in prop::collection::vec(prop::collection::vec(op(), 0..16), 1..4),
        capacity in prop::option::of(0usize..3),
        seed in prop::option::of(any::<u64>()),
    ) {
        check(workers, program, capacity, seed);
    }
}
