//! The values that sources weaker than the command line give.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, Id};

use super::option::Options;

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A variable with this name.
    Variable(String),
    /// A line of the file.
    Line(usize),
}

/// Values by option. The first source that gives an option, or an option that excludes it, decides.
pub(crate) struct Layer {
    decided: BTreeSet<Id>,
    /// The options given by the source that is being read.
    reading: BTreeSet<Id>,
    values: BTreeMap<Id, (Vec<String>, Origin)>,
}

impl Layer {
    /// Creates an empty layer below a command line that gives these options.
    pub(crate) fn below<'a>(options: &'a Options, given: impl Iterator<Item = &'a Arg>) -> Layer {
        let mut layer = Layer { decided: BTreeSet::new(), reading: BTreeSet::new(), values: BTreeMap::new() };
        layer.reading = given.map(|arg| arg.get_id().clone()).collect();
        layer.next_source(options);
        layer
    }

    /// Takes these values, unless a stronger source has decided. Fails with an option of the same
    /// source that excludes this one.
    pub(crate) fn give(
        &mut self,
        options: &Options,
        arg: &Arg,
        values: Vec<String>,
        origin: Origin,
    ) -> Result<(), String> {
        let id = arg.get_id();
        if let Some(other) = options.conflicts(arg).iter().find(|other| self.reading.contains(*other)) {
            return Err(format!("`{id}` and `{other}` exclude each other; leave one of them out"));
        }
        if !self.reading.insert(id.clone()) {
            return Err(format!("`{id}` is given twice, once by a name that it had before; leave one of them out"));
        }
        if !self.decided.contains(id) {
            self.values.insert(id.clone(), (values, origin));
        }
        Ok(())
    }

    /// Starts the next, weaker source.
    pub(crate) fn next_source(&mut self, options: &Options) {
        for id in std::mem::take(&mut self.reading) {
            if let Some(arg) = options.find(id.as_str()) {
                self.decided.extend(options.conflicts(arg));
            }
            self.decided.insert(id);
        }
    }

    /// Makes the value of `arg` its default.
    pub(crate) fn apply(&self, arg: Arg) -> Arg {
        match self.values.get(arg.get_id()) {
            Some((values, _)) => arg.default_values(values).required(false),
            None => arg,
        }
    }

    /// The sources of the options that the command line does not give.
    pub(crate) fn origins(&self) -> BTreeMap<Id, Origin> {
        self.values.iter().map(|(id, (_, origin))| (id.clone(), origin.clone())).collect()
    }
}
