//! The order in which one sink gets the messages of many sources: the choice alone, without locks.

use std::collections::{BTreeMap, BTreeSet};

/// The order in which messages of several sources are sent on.
///
/// | discipline | next message | effect of a source that sends much | starves |
/// |---|---|---|---|
/// | `Fifo` | the oldest | gets as much as it sends | no source |
/// | `RoundRobin` | one of each source that has any, in turn | delays each other source by at most one message | no source |
/// | `Priority` | of the highest priority that has any, as in `RoundRobin` | delays messages of its priority by one each, and lower ones as long as it sends | lower ones, unless `bypass_max` is set |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Discipline {
    /// In the order of arrival.
    #[default]
    Fifo,
    /// One of each source in turn.
    RoundRobin,
    /// Higher priorities first.
    Priority {
        /// A source of lower priority goes next after this many messages went before it; `None` for
        /// never.
        bypass_max: Option<u32>,
    },
}

/// Waiting messages, by source.
pub(super) struct Merge<T> {
    discipline: Discipline,
    sources: BTreeMap<u64, Source<T>>,
    next_source: u64,
    next_ticket: u64,
    /// The sources with messages, in the order in which they go next.
    line: BTreeSet<(MergeRank, u64)>,
}

/// A source's position: smaller is earlier. For `Fifo` the ticket of its first message; otherwise
/// the turn that it waits for.
type MergeRank = (u8, u64);

struct Source<T> {
    priority: u8,
    place: MergeRank,
    messages: BTreeMap<u64, T>,
    /// How often sources of higher priority went first since it began to wait.
    bypassed: u32,
    /// The source is forgotten with its last message.
    is_gone: bool,
}

impl<T> Merge<T> {
    pub(super) fn new(discipline: Discipline) -> Merge<T> {
        Merge { discipline, sources: BTreeMap::new(), next_source: 0, next_ticket: 0, line: BTreeSet::new() }
    }

    pub(super) fn source(&mut self, priority: u8) -> u64 {
        let key = self.next_source;
        self.next_source += 1;
        self.sources
            .insert(key, Source { priority, place: (0, 0), messages: BTreeMap::new(), bypassed: 0, is_gone: false });
        key
    }

    pub(super) fn push(&mut self, key: u64, message: T) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let discipline = self.discipline;
        let Some(source) = self.sources.get_mut(&key) else { unreachable!("a source stays while it has messages") };
        if source.messages.insert(ticket, message).is_none() && source.messages.len() == 1 {
            source.bypassed = 0;
            source.place = place(discipline, source.priority, ticket);
            self.line.insert((source.place, key));
        }
        ticket
    }

    /// Takes the next message.
    pub(super) fn pop(&mut self) -> Option<T> {
        let key = self.bypassed_long().or_else(|| self.line.first().map(|(_, key)| *key))?;
        let turn = self.next_ticket;
        self.next_ticket += 1;
        let discipline = self.discipline;
        let source = self.sources.get_mut(&key)?;
        self.line.remove(&(source.place, key));
        let priority = source.priority;
        let (_, message) = source.messages.pop_first()?;
        source.bypassed = 0;
        if let Some((first, _)) = source.messages.first_key_value() {
            let number = if discipline == Discipline::Fifo { *first } else { turn };
            source.place = place(discipline, priority, number);
            self.line.insert((source.place, key));
        }
        if let Discipline::Priority { bypass_max: Some(_) } = discipline {
            for source in self.sources.values_mut().filter(|source| source.priority < priority) {
                source.bypassed = source.bypassed.saturating_add(u32::from(!source.messages.is_empty()));
            }
        }
        self.forget_gone(key);
        Some(message)
    }

    /// Removes a message that still waits.
    pub(super) fn cancel(&mut self, key: u64, ticket: u64) -> Option<T> {
        let discipline = self.discipline;
        let source = self.sources.get_mut(&key)?;
        let message = source.messages.remove(&ticket)?;
        self.line.remove(&(source.place, key));
        if let Some((first, _)) = source.messages.first_key_value() {
            if discipline == Discipline::Fifo {
                source.place = place(discipline, source.priority, *first);
            }
            self.line.insert((source.place, key));
        }
        self.forget_gone(key);
        Some(message)
    }

    /// Marks a source that sends no more. Its waiting messages stay.
    pub(super) fn remove(&mut self, key: u64) {
        if let Some(source) = self.sources.get_mut(&key) {
            source.is_gone = true;
            self.forget_gone(key);
        }
    }

    fn forget_gone(&mut self, key: u64) {
        if self.sources.get(&key).is_some_and(|source| source.is_gone && source.messages.is_empty()) {
            self.sources.remove(&key);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sources.values().map(|source| source.messages.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub(super) fn drain(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    /// A source that others have gone before as often as allowed; of several, the one that has
    /// waited so longest.
    fn bypassed_long(&self) -> Option<u64> {
        let Discipline::Priority { bypass_max: Some(max) } = self.discipline else { return None };
        let long = self.line.iter().filter(|(_, key)| self.sources[key].bypassed >= max);
        long.max_by_key(|(_, key)| self.sources[key].bypassed).map(|(_, key)| *key)
    }
}

fn place(discipline: Discipline, priority: u8, number: u64) -> MergeRank {
    match discipline {
        Discipline::Priority { .. } => (u8::MAX - priority, number),
        Discipline::Fifo | Discipline::RoundRobin => (0, number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type OracleSource = (u8, u64, u32, Vec<(u64, u32)>);

    /// The same choice, written in the simplest way.
    struct Oracle {
        discipline: Discipline,
        /// Source, its priority, when it was last served or else became non-empty, how often it was
        /// bypassed, messages.
        sources: Vec<OracleSource>,
        clock: u64,
    }

    impl Oracle {
        fn push(&mut self, source: usize, ticket: u64, message: u32) {
            self.clock += 1;
            let (_, since, bypassed, messages) = &mut self.sources[source];
            if messages.is_empty() {
                (*since, *bypassed) = (self.clock, 0);
            }
            messages.push((ticket, message));
        }

        fn pop(&mut self) -> Option<u32> {
            self.clock += 1;
            let busy: Vec<usize> = (0..self.sources.len()).filter(|at| !self.sources[*at].3.is_empty()).collect();
            let at = match self.discipline {
                Discipline::Fifo => *busy.iter().min_by_key(|at| self.sources[**at].3[0].0)?,
                Discipline::RoundRobin => *busy.iter().min_by_key(|at| self.sources[**at].1)?,
                Discipline::Priority { bypass_max } => {
                    let long = bypass_max.and_then(|max| {
                        let long = busy.iter().filter(|at| self.sources[**at].2 >= max);
                        long.map(|at| self.sources[*at].2).max()
                    });
                    match long {
                        Some(most) => {
                            let mut most_bypassed: Vec<_> =
                                busy.iter().filter(|at| self.sources[**at].2 == most).collect();
                            most_bypassed.sort_by_key(|at| (u8::MAX - self.sources[**at].0, self.sources[**at].1));
                            **most_bypassed.last()?
                        }
                        None => *busy.iter().min_by_key(|at| (u8::MAX - self.sources[**at].0, self.sources[**at].1))?,
                    }
                }
            };
            let priority = self.sources[at].0;
            let (_, message) = self.sources[at].3.remove(0);
            (self.sources[at].1, self.sources[at].2) = (self.clock, 0);
            for (other, _, bypassed, messages) in &mut self.sources {
                if *other < priority && !messages.is_empty() {
                    *bypassed += 1;
                }
            }
            Some(message)
        }
    }

    proptest! {
        #[test]
        fn merge_chooses_as_the_oracle_does(
            which in 0_usize..4,
            steps in prop::collection::vec((0_u8..5, 0_usize..4, any::<u8>()), 1..300),
        ) {
            let discipline = [
                Discipline::Fifo,
                Discipline::RoundRobin,
                Discipline::Priority { bypass_max: None },
                Discipline::Priority { bypass_max: Some(3) },
            ][which];
            let mut merge = Merge::new(discipline);
            let priorities = [0, 1, 1, 7];
            let keys = priorities.map(|priority| merge.source(priority));
            let mut oracle = Oracle { discipline, sources: priorities.map(|p| (p, 0, 0, Vec::new())).to_vec(), clock: 0 };
            for (number, (step, source, choice)) in steps.into_iter().enumerate() {
                match step {
                    0..2 => {
                        let ticket = merge.push(keys[source], number as u32);
                        oracle.push(source, ticket, number as u32);
                    }
                    2..4 => prop_assert_eq!(merge.pop(), oracle.pop()),
                    _ => {
                        let messages = &mut oracle.sources[source].3;
                        if !messages.is_empty() {
                            let (ticket, message) = messages.remove(usize::from(choice) % messages.len());
                            prop_assert_eq!(merge.cancel(keys[source], ticket), Some(message));
                            prop_assert_eq!(merge.cancel(keys[source], ticket), None);
                        }
                    }
                }
                let len: usize = oracle.sources.iter().map(|source| source.3.len()).sum();
                prop_assert_eq!((merge.len(), merge.is_empty()), (len, len == 0));
            }
        }
    }

    #[test]
    fn a_busy_source_waits_for_quiet_ones() {
        let mut merge = Merge::new(Discipline::RoundRobin);
        let (busy, quiet) = (merge.source(0), merge.source(0));
        for n in 0..10 {
            merge.push(busy, n);
        }
        merge.push(quiet, 100);
        let first_three = [merge.pop(), merge.pop(), merge.pop()];
        assert!(first_three.contains(&Some(100)), "{first_three:?}");
    }
}
