//! Callbacks, colors and families out of events.

use dapple_sched::environment::HashMap;

use crate::recording::{Event, Kind, Line, Recording};

/// A callback that has run, or has begun to.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) callback: u64,
    pub(crate) cause: u64,
    /// Index of its color.
    pub(crate) color: usize,
    pub(crate) line: u32,
    pub(crate) worker: Option<u16>,
    /// It holds several colors; `color` is one of them.
    pub(crate) several: bool,
    pub(crate) accepted_ns: u64,
    pub(crate) span: Span,
    /// Closures that ran in line with the state of another color, in order.
    pub(crate) holds: Vec<InLine>,
    /// Callbacks that ran in it, as the poll of a task that waited for a state does; their time is not its own.
    pub(crate) nested: Vec<Span>,
}

impl Run {
    /// Its own time, in pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Span> {
        let ends = self.nested.iter().map(|nested| nested.from).chain([self.span.to]);
        let begins = [self.span.from].into_iter().chain(self.nested.iter().map(|nested| nested.to));
        begins.zip(ends).map(|(from, to)| Span { from, to: to.max(from) })
    }

    pub(crate) fn own_ns(&self) -> u64 {
        self.pieces().map(Span::len).sum()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Span {
    pub(crate) fn len(self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// A closure in line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InLine {
    pub(crate) color: usize,
    /// It reads the state, at the same time as other readers.
    pub(crate) reads: bool,
    pub(crate) span: Span,
}

/// A color, by what ran in it.
#[derive(Clone, Debug)]
pub(crate) struct Color {
    pub(crate) family: usize,
    /// When something ran in it: sorted, and without overlaps.
    pub(crate) busy: Busy,
    /// When readers ran in it.
    pub(crate) reading: Busy,
}

impl Color {
    /// The time in which only one thing ran in it.
    pub(crate) fn serial_ns(&self) -> u64 {
        self.busy.total() - self.reading.total()
    }
}

/// Colors with the same label; else those that the same line has made, or to which the same line posts.
#[derive(Clone, Debug)]
pub(crate) struct Kin {
    pub(crate) line: u32,
    /// The line made states; otherwise it posts callbacks or spawns tasks.
    pub(crate) is_state: bool,
    pub(crate) colors: usize,
}

/// Everything that ran.
#[derive(Debug)]
pub(crate) struct Runs<'r> {
    pub(crate) lines: &'r [Line],
    pub(crate) elapsed_ns: u64,
    /// In the order in which they began.
    pub(crate) runs: Vec<Run>,
    pub(crate) colors: Vec<Color>,
    pub(crate) families: Vec<Kin>,
    /// When each worker ran a callback.
    pub(crate) workers: Vec<Busy>,
}

impl Runs<'_> {
    pub(crate) fn of(recording: &Recording) -> Runs<'_> {
        let mut colors = Numbers::default();
        let (runs, loose) = pair(recording, &mut colors);
        let (families, family_of) = families(&runs, &loose, recording, colors.len());
        let mut busy = vec![Vec::new(); colors.len()];
        let mut reading = vec![Vec::new(); colors.len()];
        let mut hold = |hold: &InLine| {
            busy[hold.color].push(hold.span);
            if hold.reads {
                reading[hold.color].push(hold.span);
            }
        };
        runs.iter().flat_map(|run| &run.holds).for_each(&mut hold);
        loose.iter().for_each(|(loose, _)| hold(loose));
        let mut workers = vec![Vec::new(); recording.workers];
        for run in &runs {
            busy[run.color].extend(run.pieces());
            if let Some(spans) = run.worker.and_then(|worker| workers.get_mut(usize::from(worker))) {
                spans.push(run.span);
            }
        }
        let colors = busy.into_iter().zip(reading).zip(family_of).map(|((busy, reading), family)| Color {
            family,
            busy: Busy::of(busy),
            reading: Busy::of(reading),
        });
        Runs {
            lines: &recording.lines,
            elapsed_ns: recording.elapsed_ns.max(1),
            colors: colors.collect(),
            runs,
            families,
            workers: workers.into_iter().map(Busy::of).collect(),
        }
    }

    pub(crate) fn name(&self, family: usize) -> String {
        self.lines[self.families[family].line as usize].name()
    }

    /// A line of the family, as `src/bank.rs:41`.
    pub(crate) fn place(&self, family: usize) -> String {
        self.lines[self.families[family].line as usize].place()
    }

    pub(crate) fn family_of(&self, run: &Run) -> usize {
        self.colors[run.color].family
    }
}

/// Numbers from 0 for ids.
#[derive(Default)]
struct Numbers(HashMap<u64, usize>);

impl Numbers {
    fn of(&mut self, id: u64) -> usize {
        let next = self.0.len();
        *self.0.entry(id).or_insert(next)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// A closure in line outside of all callbacks, with its line.
type Loose = (InLine, u32);

/// Puts the events of each callback together.
fn pair(recording: &Recording, colors: &mut Numbers) -> (Vec<Run>, Vec<Loose>) {
    let mut runs: Vec<Run> = Vec::new();
    let mut places: HashMap<u64, usize> = HashMap::default();
    let mut loose = Vec::new();
    let mut lines_of_holds = Vec::new();
    for event in &recording.events {
        let Event { callback, cause, line, worker, began_ns, at_ns, .. } = *event;
        let color = colors.of(event.color);
        match event.kind {
            Kind::Accepted | Kind::AcceptedBySeveral => {
                places.insert(callback, runs.len());
                // Up to the end, unless it begins and ends before.
                let span = Span { from: u64::MAX, to: recording.elapsed_ns };
                runs.push(Run {
                    callback,
                    cause,
                    color,
                    line,
                    worker,
                    several: event.kind == Kind::AcceptedBySeveral,
                    accepted_ns: at_ns,
                    span,
                    holds: Vec::new(),
                    nested: Vec::new(),
                });
            }
            Kind::Started => {
                if let Some(run) = places.get(&callback).map(|place| &mut runs[*place]) {
                    (run.span.from, run.worker) = (at_ns, worker);
                }
            }
            Kind::Ended => {
                let run = places.get(&callback).map(|place| &mut runs[*place]);
                // A callback that has ended has begun, except in a file that was tampered with.
                if let Some(run) = run.filter(|run| run.span.from != u64::MAX) {
                    run.span.to = at_ns.max(run.span.from);
                }
            }
            Kind::InLine | Kind::InLineRead => {
                let reads = event.kind == Kind::InLineRead;
                let hold = InLine { color, reads, span: Span { from: began_ns, to: at_ns } };
                match places.get(&cause) {
                    Some(place) if runs[*place].color != color => {
                        runs[*place].holds.push(hold);
                        lines_of_holds.push((hold, line));
                    }
                    _ => loose.push((hold, line)),
                }
            }
        }
    }
    runs.retain(|run| run.span.from <= run.span.to);
    runs.sort_by_key(|run| run.span.from);
    for run in &mut runs {
        run.holds.sort_by_key(|hold| hold.span.from);
    }
    nest(&mut runs);
    // Their lines make families; their spans are those of the callbacks.
    loose.extend(
        lines_of_holds.into_iter().map(|(hold, line)| (InLine { span: Span { from: 0, to: 0 }, ..hold }, line)),
    );
    (runs, loose)
}

/// Finds the callbacks that ran within others: those of one worker lie one within the other, or one after the other.
fn nest(runs: &mut [Run]) {
    let mut around: HashMap<u16, Vec<usize>> = HashMap::default();
    for at in 0..runs.len() {
        let (Some(worker), span) = (runs[at].worker, runs[at].span) else { continue };
        let stack = around.entry(worker).or_default();
        while stack.last().is_some_and(|outer| runs[*outer].span.to < span.to) {
            stack.pop();
        }
        if let Some(outer) = stack.last() {
            runs[*outer].nested.push(span);
        }
        stack.push(at);
    }
}

/// Families, and the family of each color: by the line of its state; else by the line of its longest callbacks.
fn families(runs: &[Run], holds: &[Loose], recording: &Recording, colors: usize) -> (Vec<Kin>, Vec<usize>) {
    let mut states: Vec<Option<u32>> = vec![None; colors];
    for (hold, line) in holds {
        states[hold.color] = Some(*line);
    }
    let mut spent: Vec<HashMap<u32, u64>> = vec![HashMap::default(); colors];
    for run in runs {
        *spent[run.color].entry(run.line).or_default() += run.own_ns() + 1;
    }
    let alike = alike(recording);
    let mut families: Vec<Kin> = Vec::new();
    let mut found: HashMap<(u32, bool), usize> = HashMap::default();
    let mut family_of = Vec::with_capacity(colors);
    for (state, spent) in states.into_iter().zip(spent) {
        let longest = spent.into_iter().max_by_key(|&(line, ns)| (ns, std::cmp::Reverse(line))).map(|(line, _)| line);
        let (line, is_state) = (state.or(longest).unwrap_or(0), state.is_some());
        let same = alike.get(line as usize).copied().unwrap_or(line);
        let family = *found.entry((same, is_state)).or_insert_with(|| {
            families.push(Kin { line, is_state, colors: 0 });
            families.len() - 1
        });
        families[family].colors += 1;
        family_of.push(family);
    }
    debug_assert!(families.iter().all(|family| (family.line as usize) < recording.lines.len().max(1)));
    (families, family_of)
}

/// For each line, the first one with the same label; itself if it has none.
fn alike(recording: &Recording) -> Vec<u32> {
    let mut first: HashMap<&str, u32> = HashMap::default();
    let lines = recording.lines.iter().zip(0..);
    lines.map(|(line, at)| line.label.as_deref().map_or(at, |label| *first.entry(label).or_insert(at))).collect()
}

/// Times without overlaps, with sums for quick questions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy {
    spans: Vec<Span>,
    /// The sum of all spans before each.
    before: Vec<u64>,
    total: u64,
}

impl Busy {
    pub(crate) fn of(mut spans: Vec<Span>) -> Busy {
        spans.sort_by_key(|span| span.from);
        let mut busy = Busy::default();
        for span in spans {
            match busy.spans.last_mut() {
                Some(last) if span.from <= last.to => last.to = last.to.max(span.to),
                _ => busy.spans.push(span),
            }
        }
        for span in &busy.spans {
            busy.before.push(busy.total);
            busy.total += span.len();
        }
        busy
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// How much of this time it was busy.
    pub(crate) fn within(&self, span: Span) -> u64 {
        self.until(span.to).saturating_sub(self.until(span.from))
    }

    /// The busy time before `at`.
    fn until(&self, at: u64) -> u64 {
        let next = self.spans.partition_point(|span| span.from < at);
        match next.checked_sub(1) {
            None => 0,
            Some(last) => self.before[last] + self.spans[last].to.min(at) - self.spans[last].from,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_times_are_merged_and_counted() {
        let span = |from, to| Span { from, to };
        let busy = Busy::of(vec![span(10, 20), span(15, 25), span(40, 50)]);
        assert_eq!(busy.total(), 25);
        for (from, to, expected) in [(0, 10, 0), (0, 60, 25), (12, 22, 10), (22, 45, 8), (25, 40, 0), (45, 46, 1)] {
            assert_eq!(busy.within(span(from, to)), expected, "{from} to {to}");
        }
    }
}
