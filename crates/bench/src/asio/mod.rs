//! The peer on Boost.Asio: one program in C++, in this folder, which the bench builds where `g++`
//! and Boost are installed.

use anyhow::{Context, Result, bail, ensure};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the program next to the bench's own, unless it exists; returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the bench's own executable")?;
    let folder = own.parent().context("the bench's own executable is in no folder")?.join("bench-peers");
    let program = folder.join(format!("asio-{:016x}", version()));
    if program.is_file() {
        return Ok(program);
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // Another bench may build it at the same time, so it is moved to its place in one step.
    let scratch = tempfile::tempdir_in(&folder).context("cannot make a folder for the C++ program")?;
    let built = compile(scratch.path())?;
    std::fs::rename(&built, &program).with_context(|| format!("cannot write {}", program.display()))?;
    Ok(program)
}

fn compile(folder: &Path) -> Result<PathBuf> {
    let (source, program) = (folder.join("colors.cpp"), folder.join("colors"));
    std::fs::write(&source, SOURCE).context("cannot write the C++ program")?;
    eprintln!("building the peer on Boost.Asio");
    let output = Command::new("g++").args(FLAGS).arg("-o").arg(&program).arg(&source).output();
    let output = output.context("cannot start `g++`: apt-get install g++ libboost-dev")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(!errors.contains("boost/asio.hpp: No such file"), "Boost is not installed: apt-get install libboost-dev");
    if !output.status.success() {
        bail!("`g++` failed:\n{errors}");
    }
    Ok(program)
}

/// A program for each source and set of flags.
fn version() -> u64 {
    let mut hasher = DefaultHasher::new();
    (SOURCE, FLAGS).hash(&mut hasher);
    hasher.finish()
}

const SOURCE: &str = include_str!("colors.cpp");

const FLAGS: &[&str] = &["-std=c++17", "-O3", "-DNDEBUG", "-pthread"];
