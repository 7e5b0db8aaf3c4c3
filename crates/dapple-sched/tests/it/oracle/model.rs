//! The sequential model: colors that accept and run one step at a time. It follows the observed
//! order in each color, and gets stuck if no sequential execution has it.

use super::program::{COLORS, Kind, Op, Part, index};
use super::real::{Event, Fate};

/// The observations in one color: callbacks that write are alone; readers between two of them are a
/// group, which is accepted and starts in any order.
struct Observed {
    groups: Vec<Vec<usize>>,
    /// The position of acceptance: the group, and how many of it were accepted.
    accepting: (usize, usize),
    /// The position of running: the group, and how many of it have ended.
    running: (usize, usize),
}

/// A plain thread, a running callback, or a task.
struct Agent<'a> {
    ops: &'a [Op],
    held: &'a [Part],
    /// The callback that it runs.
    callback: Option<&'a Op>,
    /// The operation that it awaits.
    awaits: Option<usize>,
    /// A task that was aborted may stop anywhere.
    may_stop: bool,
    /// It awaits a wait that another agent has begun.
    adopts: bool,
}

pub(super) struct Model<'a> {
    colors: Vec<Observed>,
    fates: &'a [Fate],
    agents: Vec<Agent<'a>>,
    /// Accepted, and not started.
    waiting: Vec<&'a Op>,
    ended: Vec<bool>,
    /// Per color: callbacks that used the account, and whether one of them has panicked.
    pub(super) account: [(usize, bool); COLORS],
}

impl Observed {
    /// Parses the observations; panics if something ran in parallel with a callback that writes.
    fn new(color: usize, events: &[Event], by_id: &[Option<&Op>]) -> Observed {
        let reads = |id: usize| {
            let op = by_id[id].expect("it was in the program");
            op.parts.iter().any(|part| part.color == color && part.reads)
        };
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut inside: Vec<usize> = Vec::new();
        for event in events {
            match *event {
                Event::Start(id) => {
                    let alone = inside.is_empty() || (reads(id) && inside.iter().all(|other| reads(*other)));
                    assert!(alone, "{id} started beside {inside:?} in color {color}: {events:?}");
                    inside.push(id);
                    match groups.last_mut() {
                        Some(group) if reads(id) && reads(group[0]) => group.push(id),
                        _ => groups.push(vec![id]),
                    }
                }
                Event::End(id) => inside.retain(|other| *other != id),
            }
        }
        assert!(inside.is_empty());
        Observed { groups, accepting: (0, 0), running: (0, 0) }
    }

    fn is_next(&self, (group, _): (usize, usize), id: usize) -> bool {
        self.groups.get(group).is_some_and(|group| group.contains(&id))
    }

    fn accept(&mut self) {
        self.accepting = self.after(self.accepting);
    }

    fn end(&mut self) {
        self.running = self.after(self.running);
    }

    fn after(&self, (group, count): (usize, usize)) -> (usize, usize) {
        if count + 1 == self.groups[group].len() { (group + 1, 0) } else { (group, count + 1) }
    }

    fn is_over(&self) -> bool {
        self.running == (self.groups.len(), 0)
    }
}

impl<'a> Model<'a> {
    pub(super) fn replay(program: &'a [Vec<Op>], observed: &[Vec<Event>], fates: &'a [Fate]) -> Model<'a> {
        let mut by_id = vec![None; fates.len()];
        program.iter().for_each(|ops| index(ops, &mut by_id));
        let agent =
            |ops: &'a Vec<Op>| Agent { ops, held: &[], callback: None, awaits: None, may_stop: false, adopts: false };
        let mut model = Model {
            colors: observed.iter().enumerate().map(|(color, seen)| Observed::new(color, seen, &by_id)).collect(),
            fates,
            agents: program.iter().map(agent).collect(),
            waiting: Vec::new(),
            ended: vec![false; fates.len()],
            account: [(0, false); COLORS],
        };
        // No step makes another one impossible, so the order of steps does not matter.
        while model.step() {}
        model
    }

    /// Unless everything observed has happened: returns the agents and their waits, which form a
    /// cycle.
    pub(super) fn stuck(&self) -> Option<String> {
        if self.agents.is_empty() && self.waiting.is_empty() && self.colors.iter().all(Observed::is_over) {
            return None;
        }
        let mut told = String::new();
        for (color, seen) in self.colors.iter().enumerate() {
            let at = |(group, count): (usize, usize)| format!("{:?} after {count}", seen.groups.get(group));
            told += &format!(
                "color {color} is to accept {} and to run {} of {:?}\n",
                at(seen.accepting),
                at(seen.running),
                seen.groups
            );
        }
        for agent in &self.agents {
            let callback = agent.callback.map(|op| op.id);
            let next: Vec<_> = agent.ops.iter().map(|op| (op.id, op.kind, &op.parts)).collect();
            told += &format!("agent of callback {callback:?} awaits {:?}, and then does {next:?}\n", agent.awaits);
        }
        for op in &self.waiting {
            told += &format!("accepted and not started: {} of {:?}\n", op.id, op.parts);
        }
        Some(told)
    }

    fn step(&mut self) -> bool {
        let mut moved = false;
        for op in std::mem::take(&mut self.waiting) {
            if self.may_start(op) {
                self.start(op);
                moved = true;
            } else {
                self.waiting.push(op);
            }
        }
        for mut agent in std::mem::take(&mut self.agents) {
            while self.act(&mut agent) {
                moved = true;
            }
            if !agent.ops.is_empty() || agent.awaits.is_some() {
                self.agents.push(agent);
            } else {
                moved = true;
                if let Some(callback) = agent.callback {
                    self.end(callback);
                }
            }
        }
        moved
    }

    /// The next step of an agent. False if that step cannot happen yet, or if no step is left.
    fn act(&mut self, agent: &mut Agent<'a>) -> bool {
        if let Some(id) = agent.awaits {
            if self.ended[id] {
                agent.awaits = None;
            }
            return self.ended[id];
        }
        let [op, rest @ ..] = agent.ops else { return false };
        // As a part of the current hold: `World` knows whether that is right.
        let nested = op.may_be_nested() && !op.is_apart_from(agent.held);
        match self.fates[op.id] {
            Fate::Runs if nested => {
                agent.ops = rest;
                return true;
            }
            Fate::Runs => {}
            Fate::Unknown if agent.may_stop => {
                agent.ops = &[];
                return true;
            }
            // Not tried.
            Fate::Unknown if nested => {
                agent.ops = rest;
                return true;
            }
            Fate::Unknown => return false,
            Fate::Refused | Fate::Canceled => {
                agent.ops = rest;
                return true;
            }
        }
        if let Kind::Task { aborted, .. } = op.kind {
            let held = op.own_color();
            self.agents.push(Agent {
                ops: &op.inner,
                held,
                callback: None,
                awaits: None,
                may_stop: aborted,
                adopts: false,
            });
            agent.ops = rest;
            return true;
        }
        if matches!(op.kind, Kind::Moved { .. }) && !agent.adopts {
            let ops = std::slice::from_ref(op);
            self.agents.push(Agent { ops, held: &[], callback: None, awaits: None, may_stop: false, adopts: true });
            agent.ops = rest;
            return true;
        }
        let may = op.parts.iter().all(|part| self.colors[part.color].is_next(self.colors[part.color].accepting, op.id));
        if !may || (op.kind == Kind::Hold && !self.may_start(op)) {
            return false;
        }
        op.parts.iter().for_each(|part| self.colors[part.color].accept());
        match op.kind {
            Kind::Hold => self.end(op),
            Kind::Wait | Kind::Glance { .. } | Kind::Moved { .. } => {
                agent.awaits = Some(op.id);
                self.waiting.push(op);
            }
            _ => self.waiting.push(op),
        }
        agent.ops = rest;
        true
    }

    fn may_start(&self, op: &Op) -> bool {
        op.parts.iter().all(|part| self.colors[part.color].is_next(self.colors[part.color].running, op.id))
    }

    fn start(&mut self, op: &'a Op) {
        if matches!(op.kind, Kind::Wait | Kind::Glance { .. } | Kind::Moved { .. }) {
            return self.end(op);
        }
        let last = op.writes().last();
        for color in op.writes() {
            let (uses, poisoned) = &mut self.account[color];
            if !*poisoned {
                *uses += 1;
                *poisoned = op.panics() && Some(color) == last;
            }
        }
        let held = &op.parts;
        self.agents.push(Agent {
            ops: &op.inner,
            held,
            callback: Some(op),
            awaits: None,
            may_stop: false,
            adopts: false,
        });
    }

    fn end(&mut self, op: &Op) {
        op.parts.iter().for_each(|part| self.colors[part.color].end());
        self.ended[op.id] = true;
    }
}
