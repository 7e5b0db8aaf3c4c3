//! The limits of all programs are rows of one table.

use std::ffi::OsString;

use clap::{Arg, Command, CommandFactory};
use dapple_serve::command_line::limits::ALL;

use super::load;

/// The programs that have limits, with the words that call each, and their required options.
const PROGRAMS: [(&[&str], &[&str]); 6] = [
    (&["serve"], &["."]),
    (&["proxy"], &[]),
    (&["sign"], &["--variant=threaded"]),
    (&["stage-host"], &[]),
    (&["store", "serve"], &["redb:x"]),
    (&["files"], &["."]),
];

fn program(words: &[&str]) -> Command {
    let mut command = crate::Cli::command();
    command.build();
    words.iter().fold(command, |command, word| command.find_subcommand(word).expect("the program is there").clone())
}

fn limits(program: &Command) -> Vec<&Arg> {
    program.get_arguments().filter(|arg| ALL.iter().any(|row| row.name == arg.get_id())).collect()
}

#[test]
fn every_program_says_the_same_of_the_same_limit() {
    for (words, _) in PROGRAMS {
        let program = program(words);
        let limits = limits(&program);
        assert!(limits.len() > 2 && limits.iter().any(|arg| arg.get_id() == "drain_s"), "{words:?}: {limits:?}");
        for arg in limits {
            let row = ALL.iter().find(|row| row.name == arg.get_id()).expect("it was found so");
            let help = arg.get_help().expect("it has a sentence").to_string();
            assert_eq!(help.split(" [default").next(), Some(row.help), "{words:?} {}", row.name);
            assert_eq!(arg.get_long().map(|long| format!("--{long}")), Some(row.flag()), "{words:?}");
        }
        let long_help = program.clone().render_long_help().to_string();
        assert!(!long_help.contains("--connections <N>"), "names of before are not shown: {long_help}");
    }
}

#[test]
fn a_wrong_value_says_option_range_and_example_in_every_program() {
    for (words, needed) in PROGRAMS {
        for arg in limits(&program(words)) {
            let row = ALL.iter().find(|row| row.name == arg.get_id()).expect("it was found so");
            let wrong = format!("{}=many", row.flag());
            let line = [&["dapple"], words, needed, &[wrong.as_str()]].concat();
            let error = crate::Cli::command().try_get_matches_from(line).expect_err(&wrong).to_string();
            let parts = [row.flag(), " from ".to_owned(), " to ".to_owned(), "for example ".to_owned()];
            assert!(parts.iter().all(|part| error.contains(part)), "{words:?}: {error}");
        }
    }
}

#[test]
fn names_of_before_are_read_in_all_sources_and_the_new_ones_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("serve.toml");
    std::fs::write(&path, "connections = 7\n").unwrap();
    let read = |more: &[&str], variables: &[(&str, &str)]| {
        let mut line: Vec<OsString> = ["dapple", "serve", ".", "--config"].map(OsString::from).into();
        line.push(path.clone().into());
        line.extend(more.iter().map(OsString::from));
        let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        load(crate::Cli::command(), line, variables.collect::<Vec<_>>().into_iter())
    };
    let shown = |more: &[&str], variables: &[(&str, &str)]| {
        let loaded = read(more, variables).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(loaded.unknown_variables, Vec::<String>::new());
        let shown = loaded.show();
        shown.lines().find(|line| line.starts_with("connections_max = ")).unwrap_or_default().to_owned()
    };
    assert!(shown(&[], &[]).starts_with("connections_max = 7"));
    assert!(shown(&[], &[("DAPPLE_SERVE_CONNECTIONS", "8")]).starts_with("connections_max = 8"));
    assert!(shown(&["--connections", "9"], &[]).starts_with("connections_max = 9"));

    std::fs::write(&path, "connections = 7\nconnections_max = 8\n").unwrap();
    let problems = read(&[], &[]).err().expect("one name is enough").to_string();
    assert!(problems.contains(":2:") && problems.contains("given twice"), "{problems}");
}

#[test]
fn the_documentation_has_the_table() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md")).unwrap();
    let table = table();
    assert!(page.contains(&table), "docs/limits.md should have this table:\n{table}");
}

/// A line for each row that a program has: the default if it is a number, and `+` if `--help`
/// describes it in words.
fn table() -> String {
    let names = PROGRAMS.map(|(words, _)| words.join(" "));
    let head = format!("| option | method or field | range | {} |\n|{}\n", names.join(" | "), "---|".repeat(9));
    let programs = PROGRAMS.map(|(words, _)| program(words));
    let lines = ALL.iter().filter_map(|row| {
        let cells = programs.each_ref().map(|program| {
            let Some(arg) = program.get_arguments().find(|arg| arg.get_id() == row.name) else { return String::new() };
            let default = arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
            default.unwrap_or_else(|| "+".to_owned())
        });
        let is_had = cells.iter().any(|cell| !cell.is_empty());
        let range = format!("{} to {}", row.text(row.range.0), row.text(row.range.1));
        is_had.then(|| format!("| `{}` | `{}` | {range} | {} |\n", row.flag(), row.method(), cells.join(" | ")))
    });
    std::iter::once(head).chain(lines).collect()
}
