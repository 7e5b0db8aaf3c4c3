//! How much of a program had to be colored: the calls that hand code to the runtime, and those
//! among them that name a color.
//!
//! The papers counted calls to `wrap`, each of which makes a callback: their web server of 1,260
//! lines has 39, and 23 of them got a color or a processor (`cpucb`). This counts, in code without
//! comments, literals and tests, each call that hands code to the runtime; see [`WAYS`]. It reads
//! tokens only, so it may misjudge a few calls: the list of `--list` takes a minute to read.

use crate::tidy::Source;
use crate::workspace::Workspace;
use std::path::Path;

/// Prints the table, and with `--list` each call.
pub(crate) fn run(list: bool) -> Result<bool, String> {
    let workspace = Workspace::own()?;
    println!(
        "{:<32} {:>6} {:>9} {:>7} {:>7} {:>7} {:>8}",
        "what", "lines", "handed", "color", "state", "neither", "serial"
    );
    for program in PROGRAMS {
        let mut files = Vec::new();
        rust_files(&workspace.root.join(program), &mut files)
            .map_err(|error| format!("cannot read {program}: {error}"))?;
        files.sort();
        if files.is_empty() {
            continue;
        }
        let mut sum = Count::default();
        for file in &files {
            let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
            let path = workspace.relative(file);
            sum.add(&Source::new(&path, &text));
        }
        println!("{}", sum.row(program));
        if list {
            sum.calls.iter().for_each(|call| println!("    {call}"));
        }
    }
    println!(
        "{:<32} {:>6} {:>9} {:>7} {:>7} {:>7} {:>8}",
        "paper: libasync-smp's web server", "1260", 39, 23, "-", 16, "-"
    );
    print!("{LEGEND}");
    Ok(true)
}

/// The programs to count; skips missing ones.
const PROGRAMS: [&str; 6] = [
    "crates/dapple-cli/src/serve",
    "crates/dapple-serve/src",
    "crates/dapple-cli/src/proxy",
    "crates/dapple-files/src",
    "crates/dapple-cli/src/files",
    "examples/web_proxy.rs",
];

/// Words before a `(` that hand code to the runtime, and whether they do so through a state with a
/// color.
const WAYS: [(&str, bool); 15] = [
    ("spawn", false),
    ("spawn_background", false),
    ("spawn_pinned", false),
    ("spawn_blocking", false),
    ("wrap", false),
    ("wrap_pinned", false),
    ("post", true),
    ("post_read", true),
    ("with", true),
    ("try_with", true),
    ("read", true),
    ("try_read", true),
    ("with_blocking", true),
    ("reading", true),
    ("when", true),
];

const LEGEND: &str = "
lines: of code, without comments, blank lines and tests. handed: calls that hand a callback or a task to the runtime. color: those
that name one (Color::…, a value called color). state: those that name a state, which has a color (Colored). neither: tasks with a
color of their own, blocking calls, callbacks with a color from a helper. serial: lines that --serial makes different, by the word
`serial` and the blocks that it chooses, or, in an example, by a comment `on one core`.
";

/// The counts of a program.
#[derive(Default)]
struct Count {
    lines: usize,
    color: usize,
    state: usize,
    neither: usize,
    serial: usize,
    calls: Vec<String>,
}

impl Count {
    fn add(&mut self, source: &Source) {
        if source.is_test_file() {
            return;
        }
        let mut serial_until = 0;
        for (index, code) in source.code.iter().enumerate() {
            if source.is_test(index) || code.trim().is_empty() {
                continue;
            }
            self.lines += 1;
            for way in calls(code) {
                let kind = kind_of(code, way);
                match kind {
                    "color" => self.color += 1,
                    "state" => self.state += 1,
                    _ => self.neither += 1,
                }
                self.calls.push(format!("{}:{}: {kind}: {}", source.path, index + 1, source.lines[index].trim()));
            }
            if chooses_by_serial(code) && code.trim_end().ends_with('{') {
                serial_until = serial_until.max(block_end(&source.code, index));
            }
            let is_serial = has_word(code, "serial") || source.lines[index].contains("on one core");
            self.serial += usize::from(is_serial || index < serial_until);
        }
    }

    fn row(&self, what: &str) -> String {
        let handed = self.color + self.state + self.neither;
        format!(
            "{what:<32} {:>6} {handed:>9} {:>7} {:>7} {:>7} {:>8}",
            self.lines, self.color, self.state, self.neither, self.serial
        )
    }
}

/// The calls of a line that pass code on: the position of each word, and the way.
fn calls(code: &str) -> Vec<(usize, (&'static str, bool))> {
    let mut found = Vec::new();
    for way in WAYS {
        for (at, _) in code.match_indices(way.0) {
            if is_call(code, at, way) {
                found.push((at, way));
            }
        }
    }
    found
}

fn is_call(code: &str, at: usize, (word, through_state): (&str, bool)) -> bool {
    let (before, after) = (&code[..at], &code[at + word.len()..]);
    if !after.starts_with('(') || before.ends_with(is_name) || before.trim_end().ends_with("fn") {
        return false;
    }
    if !through_state {
        // Threads and processes belong to the system.
        return !after.starts_with("()") && !before.contains("thread::");
    }
    // These words also read, post and choose other things: count only calls with a closure, and not
    // those of thread-local variables, which are statics.
    let argument = after[1..].trim_start();
    let takes_closure = argument.starts_with('|') || argument.starts_with("move |");
    let receiver: String = before.trim_end_matches('.').chars().rev().take_while(|letter| is_name(*letter)).collect();
    let is_static = receiver.chars().any(char::is_alphabetic) && !receiver.chars().any(char::is_lowercase);
    word == "when" && before.trim_end().ends_with(['=', ';', '(', '{', ' ']) && argument.starts_with('(')
        || before.ends_with('.') && takes_closure && !is_static
}

fn kind_of(code: &str, (at, (_, through_state)): (usize, (&'static str, bool))) -> &'static str {
    let before = &code[..at];
    let start = before
        .rfind([';', '{', '=', '('])
        .filter(|start| !before[*start..].contains(")."))
        .map_or(0, |start| start + 1);
    let receiver = &before[start..];
    if receiver.contains("Color::") || has_word(receiver, "color") {
        "color"
    } else if through_state {
        "state"
    } else {
        "neither"
    }
}

fn chooses_by_serial(code: &str) -> bool {
    has_word(code, "serial") && (has_word(code, "if") || has_word(code, "match"))
}

/// The line after the block that this line opens.
fn block_end(code: &[String], start: usize) -> usize {
    let mut depth = 0_i32;
    for (offset, line) in code[start..].iter().enumerate() {
        depth += line.matches('{').count() as i32 - line.matches('}').count() as i32;
        if depth <= 0 {
            return start + offset + 1;
        }
    }
    code.len()
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_name) && !text[at + word.len()..].starts_with(is_name))
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn rust_files(path: &Path, files: &mut Vec<std::path::PathBuf>) -> std::io::Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            rust_files(&entry?.path(), files)?;
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") && path.exists() {
        files.push(path.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> Count {
        let mut count = Count::default();
        count.add(&Source::new("a.rs", text));
        count
    }

    #[test]
    fn calls_are_told_apart() {
        for (code, kind) in [
            ("let task = dapple::spawn(run());", "neither"),
            ("drop(Color::DEFAULT.spawn(accept()));", "color"),
            ("connection.color().wrap(move |arg| {", "color"),
            ("let color = color.spawn(x);", "color"),
            ("shard.with(|shard| shard.look_up()).await;", "state"),
            ("self.jobs.post(move |jobs| jobs.end());", "state"),
            ("let made = spawn_blocking(move || {", "neither"),
            ("dapple::when((&a, &b)).post(move |(a, b)| go(a, b));", "state"),
        ] {
            let count = count(code);
            let found = [("color", count.color), ("state", count.state), ("neither", count.neither)];
            let found: Vec<&str> = found.iter().filter(|(_, count)| *count > 0).map(|(kind, _)| *kind).collect();
            assert_eq!(found, [kind], "{code}: {:?}", count.calls);
        }
        for code in [
            "fn spawn(&self) {",
            "BUF.with(|buf| buf.len());",
            "stream.read(&mut buf)",
            "// spawn(x)",
            "respawn(x)",
            "command.spawn()?",
            "thread::Builder::new().spawn(watch)",
        ] {
            assert_eq!(count(code).calls, Vec::<String>::new(), "{code}");
        }
    }

    #[test]
    fn lines_that_serial_makes_different() {
        let text = "fn a() {\n    match serial {\n        true => x(),\n        false => y(),\n    }\n    z();\n}\n";
        let count = count(text);
        assert_eq!((count.lines, count.serial), (7, 4));
        let text = "let color = Color::new(); // on one core: Color::DEFAULT\n";
        assert_eq!(super::tests::count(text).serial, 1);
    }

    #[test]
    fn tests_and_comments_do_not_count() {
        let text = "fn a() {}\n\n// spawn(x)\n#[cfg(test)]\nmod tests {\n    fn b() { spawn(x); }\n}\n";
        let count = count(text);
        assert_eq!((count.lines, count.calls.len()), (1, 0));
    }
}
