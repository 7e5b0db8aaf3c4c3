//! `cargo xtask store-torture`: histories of a store, with kills of its process, checked for
//! linearizability by porcupine.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::suite;
use crate::workspace::{Workspace, cargo};

pub(crate) const HELP: &str = "\
cargo xtask store-torture [--minutes N | --kills N | --short]

Ten clients work on eight keys of a store on redb; its process is killed (SIGKILL) repeatedly meanwhile. porcupine (a Go
module, built by Go) checks their histories of 30,000 operations each. Runs for N minutes (default 10), and at least one
history. With --kills it makes histories of 1,800 operations with 12 kills each until there were N kills: no acknowledged
write may be lost, and none that was refused be seen. With --short, one history of 3,000 operations, as in CI. Keeps the
files of a history that is not linearizable.
";

/// The form of one history.
struct Form {
    operations: u64,
    kills: u64,
}

const LONG: Form = Form { operations: 30_000, kills: 12 };
const SHORT: Form = Form { operations: 3_000, kills: 3 };
/// Each kill leaves up to ten operations with an unknown end. With more of them porcupine takes too long.
const KILLS: Form = Form { operations: 1_800, kills: 12 };

/// For `cargo xtask store-torture`.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    let minutes = match args {
        [] => 10,
        ["--short"] => return Programs::build(false)?.history(1, &SHORT),
        ["--kills", kills] => {
            let kills = kills.parse().map_err(|_| format!("`{kills}` is no number of kills"))?;
            return kill_often(&Programs::build(true)?, kills);
        }
        ["--minutes", minutes] => minutes.parse().map_err(|_| format!("`{minutes}` is no number of minutes"))?,
        [other, ..] => return Err(format!("there is no flag `{other}`; `cargo xtask store-torture --help` lists all")),
    };
    let programs = Programs::build(true)?;
    let until = Instant::now() + Duration::from_secs(minutes * 60);
    for number in 1.. {
        if !programs.history(number, &LONG)? {
            return Ok(false);
        }
        if Instant::now() >= until {
            println!("store-torture: {number} histories of {} operations are linearizable", LONG.operations);
            break;
        }
    }
    Ok(true)
}

/// Makes histories until there were so many kills.
fn kill_often(programs: &Programs, kills: u64) -> Result<bool, String> {
    let histories = kills.div_ceil(KILLS.kills).max(1);
    for number in 1..=histories {
        if !programs.history(number, &KILLS)? {
            return Ok(false);
        }
    }
    println!("store-torture: {} kills, and all of {histories} histories are linearizable", histories * KILLS.kills);
    Ok(true)
}

/// For `cargo xtask test`: one short history, where Go is there; in CI it has to be.
pub(crate) fn run_if_there() -> Result<bool, String> {
    let go = Command::new("go").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if go.is_err() && std::env::var_os("CI").is_none() {
        println!("store-torture: SKIPPED, there is no Go");
        return Ok(true);
    }
    Programs::build(false)?.history(1, &SHORT)
}

struct Programs {
    history: PathBuf,
    porcupine: PathBuf,
    folder: PathBuf,
}

impl Programs {
    fn build(release: bool) -> Result<Programs, String> {
        let workspace = Workspace::own()?;
        let folder = workspace.target.join("store-torture");
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let porcupine = folder.join("porcupine");
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(&porcupine).arg(".");
        go.current_dir(workspace.root.join("crates/xtask/src/torture/porcupine"));
        must(&mut go)?;
        let mut build = cargo();
        build.args(["build", "--example", "history"]);
        match release {
            true => build.args(["--release", "--package", "dapple-store"]),
            // As CI tests the workspace: other features would build most libraries again.
            false => build.args(suite::ALL.split(' ')),
        };
        must(&mut build)?;
        let profile = if release { "release" } else { "debug" };
        let history = workspace.target.join(profile).join("examples/history");
        let programs = Programs { history, porcupine, folder };
        programs.check_the_checker()?;
        Ok(programs)
    }

    /// Porcupine has to refuse a history with a read of a value that was overwritten.
    fn check_the_checker(&self) -> Result<(), String> {
        let file = self.folder.join("stale.jsonl");
        std::fs::write(&file, STALE).map_err(|error| format!("{}: {error}", file.display()))?;
        if self.check(&file)? { Err("porcupine takes a history with a stale read".to_owned()) } else { Ok(()) }
    }

    /// Makes one history and checks it.
    fn history(&self, number: u64, form: &Form) -> Result<bool, String> {
        let store = self.folder.join("store");
        let file = self.folder.join("history.jsonl");
        let _ = std::fs::remove_dir_all(&store);
        let mut history = File::create(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let part = form.operations / (form.kills + 1);
        let mut lines = 0;
        for epoch in 1..=form.kills + 1 {
            // The last process ends by itself. Each other one has more to do than it gets done.
            let is_last = epoch > form.kills;
            let operations = if is_last { part } else { part * 10 };
            // Two lines for each operation; other places of the commit at each kill.
            let kill_at = (!is_last).then_some(part * 2 + epoch * 7919 % 101);
            lines += self.epoch(&store, epoch, operations, kill_at, &mut history)?;
        }
        println!("store-torture: history {number}: {lines} lines, {} kills", form.kills);
        let is_linearizable = self.check(&file)?;
        if !is_linearizable {
            println!("store-torture: the history is {}, the store is {}", file.display(), store.display());
        }
        Ok(is_linearizable)
    }

    /// Runs one process of the store, and kills it after this many lines. Returns the number of
    /// lines.
    fn epoch(
        &self,
        store: &Path,
        epoch: u64,
        operations: u64,
        kill_at: Option<u64>,
        history: &mut File,
    ) -> Result<u64, String> {
        let mut command = Command::new(&self.history);
        command.arg(store).args([epoch.to_string(), operations.to_string()]).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", self.history.display()))?;
        let output = child.stdout.take().ok_or("the child has no output")?;
        let mut count = 0;
        for line in BufReader::new(output).lines() {
            let line = line.map_err(|error| format!("cannot read the history: {error}"))?;
            writeln!(history, "{line}").map_err(|error| format!("cannot write the history: {error}"))?;
            count += 1;
            if Some(count) == kill_at {
                child.kill().map_err(|error| format!("cannot kill the store: {error}"))?;
            }
        }
        let status = child.wait().map_err(|error| format!("cannot wait for the store: {error}"))?;
        if kill_at.is_none() && !status.success() {
            return Err(format!("the store of epoch {epoch} failed: {status}"));
        }
        if kill_at.is_some_and(|kill_at| count < kill_at) {
            return Err(format!("the store of epoch {epoch} ended by itself after {count} lines: {status}"));
        }
        Ok(count)
    }

    fn check(&self, file: &Path) -> Result<bool, String> {
        let output = Command::new(&self.porcupine).arg(file).output();
        let output = output.map_err(|error| format!("{}: {error}", self.porcupine.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        println!("store-torture: porcupine: {text}");
        match output.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(format!("porcupine failed: {text} {}", String::from_utf8_lossy(&output.stderr))),
        }
    }
}

fn must(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} failed: {status}")),
        Err(error) => Err(format!("cannot run {command:?}: {error}")),
    }
}

const STALE: &str = r#"{"call":1,"client":1,"op":"put","key":1,"value":1}
{"end":1,"outcome":"ok","found":0}
{"call":2,"client":1,"op":"put","key":1,"value":2}
{"end":2,"outcome":"ok","found":1}
{"call":3,"client":2,"op":"get","key":1}
{"end":3,"outcome":"ok","found":1}
"#;
