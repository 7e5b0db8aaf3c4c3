//! `cargo xtask fuzz`: builds the fuzz targets and runs them, one after the other or some of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::Workspace;

/// The text of `cargo xtask fuzz --help`.
pub(crate) const HELP: &str = "\
cargo xtask fuzz [TARGET...] [--minutes N] [--keep]

Looks for bytes for which a property of a parser does not hold; all targets, one after the other, when none is named. They begin
with what is in fuzz/corpus, which `cargo test` plays again. Ends with 1 at the first that does not hold; the bytes are then in
fuzz/artifacts.

  --minutes N  how long, for each target [default: 5]
  --keep       afterwards, puts into fuzz/corpus what reaches code that nothing in it reaches

Needs a nightly toolchain and cargo-fuzz (`rustup toolchain install nightly`, `cargo install cargo-fuzz`).
";

/// The arguments of the command.
struct Plan<'a> {
    targets: Vec<&'a str>,
    minutes: u32,
    keep: bool,
}

/// Runs the command; true if all properties held.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    let plan = plan(args)?;
    let workspace = Workspace::own()?;
    let (known, fuzz) = (known(&workspace.root)?, workspace.root.join("fuzz"));
    if let Some(unknown) = plan.targets.iter().find(|target| !known.iter().any(|known| known == *target)) {
        return Err(format!("there is no target `{unknown}`; there are {}", known.join(", ")));
    }
    let target = workspace.target.join("fuzz");
    if !build(&fuzz, &target)? {
        return Ok(false);
    }
    let program = program(&target)?;
    let is_wanted = |name: &&String| plan.targets.is_empty() || plan.targets.contains(&name.as_str());
    for name in known.iter().filter(is_wanted) {
        let (kept, found) = (fuzz.join("corpus").join(name), target.join("corpus").join(name));
        let artifacts = fuzz.join("artifacts").join(name);
        for folder in [&found, &artifacts] {
            std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        println!("xtask: {name}, {} minutes", plan.minutes);
        let mut command = Command::new(&program);
        command.env("DAPPLE_FUZZ_TARGET", name).args([&found, &kept]).args(["-max_len=4096", "-print_final_stats=1"]);
        command.arg(format!("-max_total_time={}", 60 * plan.minutes));
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        if !succeeds(&mut command)? {
            return Ok(false);
        }
        if plan.keep {
            let mut merge = Command::new(&program);
            merge.env("DAPPLE_FUZZ_TARGET", name).args(["-merge=1", "-max_len=4096"]).args([&kept, &found]);
            succeeds(&mut merge)?;
        }
    }
    Ok(true)
}

fn plan<'a>(args: &[&'a str]) -> Result<Plan<'a>, String> {
    let mut plan = Plan { targets: Vec::new(), minutes: 5, keep: false };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match *arg {
            "--keep" => plan.keep = true,
            "--minutes" => {
                let minutes = args.next().and_then(|minutes| minutes.parse().ok()).filter(|minutes| *minutes > 0);
                plan.minutes = minutes.ok_or("--minutes wants a number of minutes, such as 60")?;
            }
            flag if flag.starts_with('-') => return Err(format!("there is no `{flag}`; `cargo xtask fuzz --help`")),
            target => plan.targets.push(target),
        }
    }
    Ok(plan)
}

/// Each folder in the corpus is a target.
fn known(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/corpus");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn build(fuzz: &Path, target: &Path) -> Result<bool, String> {
    // With rustup's cargo, because the one that runs this has a fixed toolchain already.
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz", "build", "--fuzz-dir"]).arg(fuzz).arg("any");
    for variable in ["CARGO", "RUSTUP_TOOLCHAIN", "RUSTC", "RUSTFLAGS"] {
        command.env_remove(variable);
    }
    succeeds(command.current_dir(fuzz).env("CARGO_TARGET_DIR", target))
}

/// The program is in a folder that is named after the platform.
fn program(target: &Path) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(target).map_err(|error| format!("{}: {error}", target.display()))?;
    let mut programs = entries.flatten().map(|entry| entry.path().join("release/any"));
    programs.find(|program| program.exists()).ok_or_else(|| format!("no program below {}", target.display()))
}

fn succeeds(command: &mut Command) -> Result<bool, String> {
    let status = command.status().map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
    Ok(status.success())
}
