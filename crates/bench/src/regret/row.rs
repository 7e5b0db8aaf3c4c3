//! One row: an experiment of another command, with any number of workers.

use super::files::Files;
use crate::experiment::{Answer, Experiment, Peer, Seen, Trial, apart};
use std::path::Path;

/// One row of the table.
pub(crate) struct Row {
    pub(super) name: String,
    /// One line for readers.
    pub(super) what: String,
    pub(super) rule: Rule,
    /// The files that its trials need.
    pub(super) files: Files,
    /// Whether uncolored copies can be run for comparison.
    pub(super) copies: bool,
    make: Box<dyn Fn(&Ask) -> Made>,
}

/// The rule for the cost of a second worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// All work is in the process: another worker may take its share of a core, and must not slow the others down
    InProcess,
    /// The load, or the other end of a connection, needs the same cores
    SharedCores,
}

/// One trial of a row.
pub(crate) struct Ask<'a> {
    pub(crate) workers: usize,
    /// Instead, as many processes of one worker each.
    pub(crate) copies: bool,
    /// Number of the repetition, from 0.
    pub(crate) run: usize,
    pub(crate) secs: f64,
    /// The files made for the row; empty if there are none.
    pub(crate) file: &'a Path,
}

/// How a trial ended.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Made {
    Seen(Seen),
    /// This machine cannot run it.
    NotHere(String),
    /// It did not pass its check.
    Failed(String),
}

impl Row {
    /// A row that this function runs.
    pub(crate) fn new(name: String, what: String, rule: Rule, make: impl Fn(&Ask) -> Made + 'static) -> Row {
        Row { name, what, rule, files: Files::None, copies: false, make: Box::new(make) }
    }

    /// A case of an experiment. This hidden subcommand runs its trials.
    pub(crate) fn of<E: Experiment>(
        name: impl Into<String>,
        command: &'static str,
        peer: Peer,
        rule: Rule,
        case: impl Fn(usize) -> E::Case + 'static,
    ) -> Row {
        let what = E::title(&case(1));
        let make = move |ask: &Ask| {
            once::<E>(command, if ask.copies { Peer::DappleCopies } else { peer }, ask, case(ask.workers))
        };
        let copies = E::PEERS.contains(&Peer::DappleCopies);
        Row { copies, ..Row::new(name.into(), what, rule, make) }
    }

    /// The row, with these files for its trials.
    pub(crate) fn with(self, files: Files) -> Row {
        Row { files, ..self }
    }

    /// Runs one trial.
    pub(super) fn make(&self, ask: &Ask) -> Made {
        (self.make)(ask)
    }
}

fn once<E: Experiment>(command: &str, peer: Peer, ask: &Ask, case: E::Case) -> Made {
    if let Some(why) = E::obstacle(peer, &case) {
        return Made::NotHere(why);
    }
    let (experiment, file) = (E::NAME.to_owned(), ask.file.to_owned());
    let trial = Trial { experiment, peer, run: ask.run, secs: ask.secs, file, go_program: None, case };
    match apart::<E>(command, &trial) {
        Ok(Answer { problem: Some(problem), .. }) => Made::Failed(problem),
        Ok(Answer { figures: Some(figures), .. }) => match E::seen(&trial.case, &figures) {
            Some(seen) => Made::Seen(seen),
            None => Made::Failed("it does not tell what it took".to_owned()),
        },
        Ok(Answer { figures: None, .. }) => Made::Failed("it yielded no figures".to_owned()),
        Err(error) => Made::Failed(format!("{error:#}")),
    }
}
