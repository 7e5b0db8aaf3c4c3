//! Reads the three sources, one after the other.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::layer::Layer;
use super::option::{CONFIG, Options};
use super::problem::Problems;
use super::sections::Sections;
use super::{environment, file, show};

/// All options of the command that was called, and the tables of its file.
#[derive(Clone)]
pub(crate) struct Loaded {
    /// clap's matches for the whole command line.
    pub(crate) matches: ArgMatches,
    /// The tables of the file, which hold settings that options cannot express.
    pub(crate) sections: Sections,
    /// Variables named like options of the command that match none.
    pub(crate) unknown_variables: Vec<String>,
    settings: Vec<show::Setting>,
}

/// Reads the options of the subcommand of `command` that the `words` call. Reads the environment
/// and the file for commands with a `--config`.
///
/// Ends the process as clap does if the command line asks for help or makes no sense.
///
/// # Errors
///
/// All errors in the environment and in the file.
pub(crate) fn load(
    command: Command,
    words: Vec<OsString>,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Loaded, Problems> {
    read(command, words, variables).map_err(|failure| match failure {
        Failure::Sources(problems) => problems,
        Failure::Words(error) => error.exit(),
    })
}

/// Reads the options again, from the current file. Blocks.
///
/// # Errors
///
/// All errors found.
pub(crate) fn load_again(
    command: Command,
    words: Vec<OsString>,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Loaded, Problems> {
    read(command, words, variables).map_err(|failure| match failure {
        Failure::Sources(problems) => problems,
        Failure::Words(error) => Problems::words(&error),
    })
}

/// The reason why there are no options.
enum Failure {
    Sources(Problems),
    /// clap's message, which may also be help.
    Words(clap::Error),
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Failure {
        Failure::Words(error)
    }
}

fn read(
    command: Command,
    words: Vec<OsString>,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Loaded, Failure> {
    let plain = command.clone();
    let command = command.mut_subcommands(|sub| sub.mut_args(negatable));
    // A first pass without required options, because the file may give them.
    let relaxed = command.clone().mut_subcommands(|sub| sub.mut_args(|arg| arg.required(false)));
    let first = match relaxed.try_get_matches_from(&words) {
        Ok(first) => first,
        // Help shows switches as users mostly write them.
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => plain.get_matches_from(&words),
        Err(error) => return Err(error.into()),
    };
    let Some((name, given)) = first.subcommand() else { return Ok(Loaded::without_sources(first)) };
    let mut sub = command.find_subcommand(name).expect("clap found the subcommand in this command").clone();
    // Building completes the command: only then does it know all conflicts of its arguments.
    sub.build();
    if sub.get_arguments().all(|arg| arg.get_id() != CONFIG) {
        return Ok(Loaded::without_sources(command.try_get_matches_from(words)?));
    }
    let options = Options::of(&sub);
    let given_ids =
        options.all().filter(|arg| given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine));
    let mut layer = Layer::below(&options, given_ids);
    let mut problems = Vec::new();

    let variables = environment::Variables::of(name, variables);
    variables.read(&options, &mut layer, &mut problems);
    let path = given.get_one::<PathBuf>(CONFIG).cloned().or_else(|| variables.config_file());
    let sections = path.map(|path| file::read(&path, &options, &mut layer, &mut problems)).unwrap_or_default();
    if !problems.is_empty() {
        return Err(Failure::Sources(Problems(problems)));
    }
    let name = name.to_owned();
    let command = command.mut_subcommand(&name, |sub| sub.mut_args(|arg| layer.apply(arg)));
    let matches = command.try_get_matches_from(words)?;
    let given = matches.subcommand_matches(&name).expect("the same words call the same command");
    let settings = show::settings(&options, given, &layer.origins());
    Ok(Loaded { matches, sections, unknown_variables: variables.unknown(&options), settings })
}

impl Loaded {
    fn without_sources(matches: ArgMatches) -> Loaded {
        Loaded { matches, sections: Sections::default(), unknown_variables: Vec::new(), settings: Vec::new() }
    }

    /// Every option with its value and the source of that, in the form of a configuration file.
    pub(crate) fn show(&self) -> String {
        show::as_file(&self.settings)
    }

    /// The source of an option; `None` if it has its default value, even if given.
    pub(crate) fn given(&self, option: &str) -> Option<&str> {
        let setting = self.settings.iter().find(|setting| setting.name == option)?;
        setting.given()
    }

    /// The options that have another value in `newer`.
    pub(crate) fn changed<'a>(&'a self, newer: &Loaded) -> Vec<&'a str> {
        let pairs = self.settings.iter().zip(&newer.settings);
        pairs.filter(|(old, new)| old.value != new.value).map(|(old, _)| old.name.as_str()).collect()
    }
}

/// Lets the user turn a switch off again (`--list=false`), because a weaker source may have turned
/// it on.
pub(super) fn negatable(arg: Arg) -> Arg {
    match arg.get_action() {
        ArgAction::SetTrue => arg
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .default_value("false")
            .value_parser(BoolishValueParser::new()),
        _ => arg,
    }
}
