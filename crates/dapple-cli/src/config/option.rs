//! The names and types of a command's options.

use std::any::TypeId;
use std::time::Duration;

use clap::builder::ValueHint;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, Id};

/// The options of one command that may also come from the environment and the file.
pub(crate) struct Options {
    /// A copy of the command with nothing required, so that one option can be checked alone.
    command: Command,
}

/// The type of an option, in terms of TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Switch,
    Number,
    /// Seconds: a number with an optional decimal part.
    Seconds,
    Text,
}

impl Options {
    /// The options of `command`, which is built.
    pub(crate) fn of(command: &Command) -> Options {
        Options { command: command.clone().mut_args(|arg| arg.required(false)) }
    }

    /// All options in the order of their declaration.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arg> {
        self.command.get_arguments().filter(|arg| !COMMAND_LINE_ONLY.contains(&arg.get_id().as_str()))
    }

    /// The option with this name, or this former name, in the file.
    pub(crate) fn find(&self, name: &str) -> Option<&Arg> {
        self.all().find(|arg| names(arg).any(|known| known == name))
    }

    /// The options that cannot be given together with `arg`.
    pub(crate) fn conflicts(&self, arg: &Arg) -> Vec<Id> {
        let others = self.all().filter(|other| self.command.get_arg_conflicts_with(other).contains(&arg));
        let named = self.command.get_arg_conflicts_with(arg).into_iter();
        others.chain(named).map(|arg| arg.get_id().clone()).collect()
    }

    /// Checks these values for `arg`; the error says what to write instead.
    pub(crate) fn check(&self, arg: &Arg, values: &[String]) -> Result<(), String> {
        let words = values.iter().map(|value| match arg.get_long() {
            Some(long) => format!("--{long}={value}"),
            None => value.clone(),
        });
        let start = [self.command.get_name().to_owned()].into_iter();
        let stop = arg.get_long().is_none().then(|| "--".to_owned());
        match self.command.clone().try_get_matches_from(start.chain(stop).chain(words)) {
            Ok(_) => Ok(()),
            Err(error) => Err(advice(&error)),
        }
    }
}

/// clap's message about one value, without its hints about the command line.
fn advice(error: &clap::Error) -> String {
    let value = error.get(ContextKind::InvalidValue).map(ToString::to_string).unwrap_or_default();
    if let Some(ContextValue::Strings(known)) = error.get(ContextKind::ValidValue) {
        return format!("{value:?} is not a known value; write one of {}", known.join(", "));
    }
    match (error.kind(), std::error::Error::source(error)) {
        (ErrorKind::ValueValidation, Some(reason)) => reason.to_string(),
        _ => error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    }
}

/// The type of `arg`, or of a single value if it takes several.
pub(crate) fn kind(arg: &Arg) -> Kind {
    let parsed = arg.get_value_parser().type_id();
    let is = |ids: &[TypeId]| ids.iter().any(|id| parsed == *id);
    match () {
        () if is(&[TypeId::of::<bool>()]) => Kind::Switch,
        () if is(&[TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()]) => {
            Kind::Number
        }
        () if is(&[TypeId::of::<Duration>()]) => Kind::Seconds,
        () => Kind::Text,
    }
}

/// The names of `arg` in the file: the current one, and former ones.
pub(crate) fn names(arg: &Arg) -> impl Iterator<Item = String> {
    let before = arg.get_all_aliases().unwrap_or_default().into_iter().map(|name| name.replace('-', "_"));
    [arg.get_id().to_string()].into_iter().chain(before)
}

/// Whether `arg` can be given more than once.
pub(crate) fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

/// Whether `arg` takes the path of a file or folder.
pub(crate) fn is_path(arg: &Arg) -> bool {
    matches!(arg.get_value_hint(), ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath)
}

/// An example of `arg` in the form of the file.
pub(crate) fn example(arg: &Arg) -> String {
    let default = arg.get_default_values().first().and_then(|value| value.to_str());
    let value = match kind(arg) {
        Kind::Switch => "true".to_owned(),
        Kind::Number | Kind::Seconds => default.unwrap_or("1").to_owned(),
        Kind::Text => {
            let named = arg.get_value_names().and_then(|names| names.first()).map_or("…", |name| name.as_str());
            format!("{:?}", default.unwrap_or(named))
        }
    };
    match is_list(arg) {
        true => format!("{} = [{value}]", arg.get_id()),
        false => format!("{} = {value}", arg.get_id()),
    }
}

/// The option that names the configuration file.
pub(super) const CONFIG: &str = "config";

/// Options that only make sense on the command line.
pub(super) const COMMAND_LINE_ONLY: [&str; 4] = [CONFIG, "check", "help", "version"];
