//! `cargo xtask store-torture`: histories of a store, with kills of its process and of members of etcd, checked for
//! linearizability by porcupine.

mod cluster;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use cluster::Cluster;

use crate::workspace::{Workspace, cargo};
use crate::{etcd, suite};

pub(crate) const HELP: &str = "\
cargo xtask store-torture [--etcd] [--minutes N | --kills N | --short]

Ten clients work on eight keys of a store on redb; its process is killed (SIGKILL) repeatedly meanwhile. porcupine (a Go
module, built by Go) checks their histories of 30,000 operations each. Runs for N minutes (default 10), and at least one
history. With --kills it makes histories of 1,800 operations with 12 kills each until there were N kills: no acknowledged
write may be lost, and none that was refused be seen. With --short, one history of 3,000 operations, as in CI. Keeps the
files of a history that is not linearizable.

With --etcd the store is in a cluster of three members of etcd, in a network namespace (Linux; unshare, ip and nft). One member after
the other is killed, stopped, or cut off in one direction, for 2 s each; the process of the store is killed less often, since the next
one waits until its lease is over.
";

/// The form of one history.
struct Form {
    operations: u64,
    kills: u64,
}

struct Forms {
    long: Form,
    short: Form,
    kills: Form,
}

/// Each kill leaves up to ten operations with an unknown end. With more of them porcupine takes too long.
const REDB: Forms = Forms {
    long: Form { operations: 30_000, kills: 12 },
    short: Form { operations: 3_000, kills: 3 },
    kills: Form { operations: 1_800, kills: 12 },
};

/// Each kill takes the ten seconds of a lease.
const ETCD: Forms = Forms {
    long: Form { operations: 30_000, kills: 3 },
    short: Form { operations: 3_000, kills: 1 },
    kills: Form { operations: 1_800, kills: 6 },
};

/// For `cargo xtask store-torture`.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    let (is_etcd, rest) = match args {
        ["--etcd", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (minutes, forms) = (10, if is_etcd { &ETCD } else { &REDB });
    let what = match rest {
        [] => What::Minutes(minutes),
        ["--short"] => What::Short,
        ["--kills", kills] => What::Kills(kills.parse().map_err(|_| format!("`{kills}` is no number of kills"))?),
        ["--minutes", minutes] => {
            What::Minutes(minutes.parse().map_err(|_| format!("`{minutes}` is no number of minutes"))?)
        }
        [other, ..] => return Err(format!("there is no flag `{other}`; `cargo xtask store-torture --help` lists all")),
    };
    let is_release = !matches!(what, What::Short);
    if is_etcd && !cluster::is_in_namespace() {
        cluster::check_needs()?;
        // All is built before: in there is no network.
        etcd::program(&Workspace::own()?)?;
        Programs::build(is_release, false)?;
        return cluster::in_namespace(args);
    }
    let mut programs = Programs::build(is_release, is_etcd)?;
    match what {
        What::Short => programs.history(1, &forms.short),
        What::Kills(kills) => kill_often(&mut programs, &forms.kills, kills),
        What::Minutes(minutes) => {
            let until = Instant::now() + Duration::from_secs(minutes * 60);
            for number in 1.. {
                if !programs.history(number, &forms.long)? {
                    return Ok(false);
                }
                if Instant::now() >= until {
                    println!(
                        "store-torture: {number} histories of {} operations are linearizable",
                        forms.long.operations
                    );
                    break;
                }
            }
            Ok(true)
        }
    }
}

enum What {
    Minutes(u64),
    Kills(u64),
    Short,
}

/// Makes histories until there were so many kills.
fn kill_often(programs: &mut Programs, form: &Form, kills: u64) -> Result<bool, String> {
    let histories = kills.div_ceil(form.kills).max(1);
    for number in 1..=histories {
        if !programs.history(number, form)? {
            return Ok(false);
        }
    }
    println!("store-torture: {} kills, and all of {histories} histories are linearizable", histories * form.kills);
    Ok(true)
}

/// For `cargo xtask test`: one short history of each engine, where Go and the needs of the cluster are there; in CI Go has to be.
pub(crate) fn run_if_there() -> Result<bool, String> {
    let go = Command::new("go").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if go.is_err() && std::env::var_os("CI").is_none() {
        println!("store-torture: SKIPPED, there is no Go");
        return Ok(true);
    }
    if !Programs::build(false, false)?.history(1, &REDB.short)? {
        return Ok(false);
    }
    let needs = cluster::check_needs().and_then(|()| etcd::program(&Workspace::own()?).map(drop));
    if let Err(why) = needs {
        println!("store-torture: SKIPPED with etcd: {why}");
        return Ok(true);
    }
    run(&["--etcd", "--short"])
}

struct Programs {
    history: PathBuf,
    porcupine: PathBuf,
    folder: PathBuf,
    etcd: Option<Cluster>,
}

impl Programs {
    fn build(release: bool, is_etcd: bool) -> Result<Programs, String> {
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
            true => build.args(["--release", "--package", "dapple-store", "--features", "etcd"]),
            // As CI tests the workspace: other features would build most libraries again.
            false => build.args(suite::ALL.split(' ')),
        };
        must(&mut build)?;
        let profile = if release { "release" } else { "debug" };
        let history = workspace.target.join(profile).join("examples/history");
        let etcd = is_etcd.then(|| Cluster::start(&workspace, folder.join("etcd"))).transpose()?;
        let programs = Programs { history, porcupine, folder, etcd };
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
    fn history(&mut self, number: u64, form: &Form) -> Result<bool, String> {
        let file = self.folder.join("history.jsonl");
        let mut history = File::create(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let (program, mut etcd) = (self.history.clone(), self.etcd.as_mut());
        let url = match &etcd {
            Some(etcd) => etcd.url(&format!("history-{number}")),
            None => {
                let store = self.folder.join("store");
                let _ = std::fs::remove_dir_all(&store);
                format!("redb:{}", store.display())
            }
        };
        let is_over = AtomicBool::new(false);
        let (lines, faults) = std::thread::scope(|scope| {
            let failing = etcd.as_mut().map(|etcd| scope.spawn(|| etcd.fail(&is_over)));
            let lines = epochs(&program, &url, form, &mut history);
            is_over.store(true, Relaxed);
            let faults = failing.map_or(Ok(0), |failing| failing.join().map_err(|_| "the faults panicked")?);
            Ok::<_, String>((lines?, faults?))
        })?;
        println!("store-torture: history {number}: {lines} lines, {} kills, {faults} faults of members", form.kills);
        if self.etcd.is_some() && faults == 0 {
            return Err("no member of etcd failed meanwhile, so the history shows nothing".to_owned());
        }
        let is_linearizable = self.check(&file)?;
        if !is_linearizable {
            println!("store-torture: the history is {}, the store is {url}", file.display());
        }
        Ok(is_linearizable)
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

/// Runs the processes of one history, one after the other. Returns the number of lines.
fn epochs(program: &Path, url: &str, form: &Form, history: &mut File) -> Result<u64, String> {
    let part = form.operations / (form.kills + 1);
    let mut lines = 0;
    for epoch in 1..=form.kills + 1 {
        // The last process ends by itself. Each other one has more to do than it gets done.
        let is_last = epoch > form.kills;
        let operations = if is_last { part } else { part * 10 };
        // Two lines for each operation; other places of the commit at each kill.
        let kill_at = (!is_last).then_some(part * 2 + epoch * 7919 % 101);
        let mut command = Command::new(program);
        command.arg(url).args([epoch.to_string(), operations.to_string()]);
        lines += write_epoch(&mut command, kill_at, history)?;
    }
    Ok(lines)
}

/// Runs one process of the store, and kills it after this many lines. Returns the number of lines.
fn write_epoch(command: &mut Command, kill_at: Option<u64>, history: &mut File) -> Result<u64, String> {
    let child = command.stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("{}: {error}", command.get_program().display()))?;
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
        return Err(format!("{command:?} failed: {status}"));
    }
    if kill_at.is_some_and(|kill_at| count < kill_at) {
        return Err(format!("{command:?} ended by itself after {count} lines: {status}"));
    }
    Ok(count)
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
