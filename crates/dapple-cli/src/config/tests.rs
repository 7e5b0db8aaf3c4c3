//! The three sources together.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::option::{self, Kind, Options};
use super::{Loaded, Problems, load};

#[derive(Debug, Parser)]
struct Program {
    #[command(subcommand)]
    command: Called,
}

#[derive(Debug, Subcommand)]
enum Called {
    Paint(Paint),
}

#[derive(Debug, clap::Args)]
struct Paint {
    wall: PathBuf,
    #[arg(long)]
    config: Option<PathBuf>,
    #[arg(long, default_value_t = 1, value_parser = super::number::<u16>(1..=9))]
    coats: u16,
    #[arg(long)]
    dry: bool,
    #[arg(long, conflicts_with = "coats")]
    plan: Option<String>,
    #[arg(long, value_delimiter = ',')]
    tint: Vec<String>,
}

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn loaded(line: &str, variables: &[(&str, &str)], file: &str) -> Result<Loaded, Problems> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("paint.toml");
    std::fs::write(&path, file).unwrap();
    let mut words = words(line);
    words.extend(["--config".into(), path.into()]);
    load(Program::command(), words, variables.iter().map(|(name, value)| (name.into(), value.into())))
}

fn paint(line: &str, variables: &[(&str, &str)], file: &str) -> Paint {
    let loaded = loaded(line, variables, file).unwrap_or_else(|problems| panic!("{problems}"));
    let Called::Paint(paint) = Program::from_arg_matches(&loaded.matches).unwrap().command;
    paint
}

fn problems(variables: &[(&str, &str)], file: &str) -> String {
    loaded("program paint wall", variables, file).err().expect("this has problems").to_string()
}

#[test]
fn the_command_line_wins_over_the_environment_and_that_over_the_file() {
    let file = "coats = 3\n";
    assert_eq!(paint("program paint wall", &[], "").coats, 1);
    assert_eq!(paint("program paint wall", &[], file).coats, 3);
    assert_eq!(paint("program paint wall", &[("DAPPLE_PAINT_COATS", "4")], file).coats, 4);
    assert_eq!(paint("program paint wall --coats 5", &[("DAPPLE_PAINT_COATS", "4")], file).coats, 5);
}

#[test]
fn a_stronger_source_decides_between_options_that_exclude_each_other() {
    let by_flag = paint("program paint wall --coats 2", &[("DAPPLE_PAINT_PLAN", "a")], "plan = 'b'\n");
    assert_eq!((by_flag.coats, by_flag.plan), (2, None));
    let by_variable = paint("program paint wall", &[("DAPPLE_PAINT_COATS", "4")], "plan = 'b'\n");
    assert_eq!((by_variable.coats, by_variable.plan), (4, None));
    let message = problems(&[], "coats = 2\nplan = 'b'\n");
    assert!(message.contains(":2:8: `plan` and `coats` exclude each other"), "{message}");
}

#[test]
fn required_options_may_be_in_the_file() {
    let found = paint("program paint", &[], "wall = '/north'\n");
    assert_eq!(found.wall, PathBuf::from("/north"));
    let relative = paint("program paint", &[], "wall = 'north'\n");
    assert!(relative.wall.is_absolute() && relative.wall.ends_with("north"), "{:?}", relative.wall);
}

#[test]
fn switches_can_be_turned_off_again() {
    assert!(!paint("program paint wall", &[], "").dry);
    assert!(paint("program paint wall --dry", &[], "").dry);
    assert!(paint("program paint wall", &[("DAPPLE_PAINT_DRY", "yes")], "").dry);
    assert!(paint("program paint wall", &[], "dry = true").dry);
    assert!(!paint("program paint wall --dry=false", &[], "dry = true").dry);
    assert!(!paint("program paint wall", &[("DAPPLE_PAINT_DRY", "0")], "dry = true").dry);
}

#[test]
fn lists_come_whole_from_one_source() {
    assert_eq!(paint("program paint wall", &[], "tint = ['a', 'b']").tint, ["a", "b"]);
    assert_eq!(paint("program paint wall", &[], "tint = 'a'").tint, ["a"]);
    assert_eq!(paint("program paint wall", &[("DAPPLE_PAINT_TINT", "c, d")], "tint = ['a']").tint, ["c", "d"]);
    assert_eq!(paint("program paint wall --tint e --tint f", &[], "tint = ['a']").tint, ["e", "f"]);
}

#[test]
fn every_problem_says_where_it_is_and_what_to_write() {
    let message = problems(&[], "coat = 2\ndry = 1\ncoats = '3'\ntint = [1]\nconfig = 'x'\n");
    for part in [
        "paint.toml:1:1: there is no option `coat`; did you mean `coats`?\n  1 | coat = 2\n    | ^^^^",
        ":2:7: `dry` takes true or false, and this is an integer; write `dry = true`",
        ":3:9: `coats` takes a whole number without quotes, and this is a string; write `coats = 3`",
        ":4:9: `tint` takes a string in quotes, and this is an integer; write `tint = [\"TINT\"]`",
        ":5:1: `config` can only be given on the command line",
    ] {
        assert!(message.contains(part), "{part}\n--- in\n{message}");
    }
    let message = problems(&[("DAPPLE_PAINT_COATS", "ten")], "coats = 0x10\n");
    assert!(
        message.contains("DAPPLE_PAINT_COATS=ten: ten is not possible here; write a number from 1 to 9"),
        "{message}"
    );
    assert!(message.contains(":1:9: 16 is not possible here; write a number from 1 to 9"), "{message}");
    let message = problems(&[], "coats = 1\ncoats = \n");
    assert!(message.contains("paint.toml:2:"), "{message}");
}

#[test]
fn unknown_variables_are_reported_and_empty_ones_count_as_unset() {
    let variables = [("DAPPLE_PAINT_COTS", "1"), ("DAPPLE_PAINT_COATS", ""), ("DAPPLE_SERVE_X", "1")];
    let loaded = loaded("program paint wall", &variables, "").unwrap();
    assert_eq!(loaded.unknown_variables, ["DAPPLE_PAINT_COTS"]);
}

#[test]
fn printed_settings_can_be_read_again() {
    let variables = [("DAPPLE_PAINT_TINT", "a,b")];
    let shown = loaded("program paint wall --dry", &variables, "coats = 2\n").unwrap().show();
    for part in ["dry = true", "# command line", "# DAPPLE_PAINT_TINT", "# line 1 of the file", "# plan is not set"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let again = paint("program paint", &[], &shown);
    assert_eq!((again.coats, again.dry, again.tint), (2, true, vec!["a".to_owned(), "b".to_owned()]));
}

/// Gives each option of this program's commands in the file alone, and in the environment alone.
#[test]
fn every_option_can_be_given_in_every_source() {
    let mut command = crate::Cli::command().mut_subcommands(|sub| sub.mut_args(super::load::negatable));
    command.build();
    let with_file = |sub: &&clap::Command| sub.get_arguments().any(|arg| arg.get_id() == option::CONFIG);
    for sub in command.get_subcommands().filter(with_file) {
        let options = Options::of(sub);
        assert!(options.all().count() > 1);
        for arg in options.all() {
            let id = arg.get_id().as_str();
            if let Some(long) = arg.get_long() {
                assert_eq!(long, id.replace('_', "-"), "one name in all sources");
            }
            let takes_words = arg.get_action().takes_values();
            assert!(takes_words && (option::kind(arg) != Kind::Switch || id != "config"), "{id}");
            let given = given_in_file(sub, arg);
            assert!(given.contains(&format!("{id} = ")) && given.contains("of the file"), "{id}: {given}");
        }
    }
}

fn given_in_file(command: &clap::Command, arg: &clap::Arg) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.toml");
    let value = match (option::kind(arg), arg.get_default_values().first(), arg.get_possible_values().first()) {
        (Kind::Switch, ..) => "true".to_owned(),
        (Kind::Number | Kind::Seconds, Some(default), _) => default.to_string_lossy().into_owned(),
        (Kind::Number | Kind::Seconds, None, _) => "2".to_owned(),
        (Kind::Text, _, Some(possible)) => format!("{:?}", possible.get_name()),
        (Kind::Text, ..) => {
            let texts = [
                "localhost:80",
                "10.0.0.0/8",
                "localhost",
                "http://localhost",
                "/path",
                "10.0.0.1",
                "etcd://localhost:80/a",
                "tun:web0,10.7.0.1/24",
            ];
            let mut texts = texts.into_iter().map(str::to_owned);
            let fits = texts.find(|text| Options::of(command).check(arg, std::slice::from_ref(text)).is_ok());
            format!("{:?}", fits.unwrap_or_else(|| panic!("no example for {arg}")))
        }
    };
    std::fs::write(&path, format!("{} = {value}\n", arg.get_id())).unwrap();
    let mut line = words(&format!("dapple {}", command.get_name()));
    if command.get_arguments().any(|other| other.is_positional() && other.get_id() != arg.get_id()) {
        line.push("wall".into());
    }
    line.extend(["--config".into(), path.into()]);
    let loaded = load(crate::Cli::command(), line, std::iter::empty());
    let shown = loaded.unwrap_or_else(|problems| panic!("{problems}")).show();
    shown.lines().find(|line| line.starts_with(&format!("{} = ", arg.get_id()))).unwrap_or_default().to_owned()
}
