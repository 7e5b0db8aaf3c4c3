//! The peer `dapple`: the example `spin_server`, built next to this program.

use super::Setting;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// The program's path.
pub(super) fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the bench's own executable")?;
    let program = own.with_file_name("examples").join("spin_server");
    if program.is_file() {
        return Ok(program);
    }
    let profile = if cfg!(debug_assertions) { "" } else { "--release " };
    bail!(
        "{} is not there: build it with `cargo build {profile}-p dapple --features serve --example spin_server`",
        program.display()
    )
}

pub(super) fn command(setting: &Setting, port: u16) -> Result<Command> {
    let mut command = setting.command(&program()?)?;
    command.arg("--port").arg(port.to_string()).arg("--workers").arg(setting.workers.to_string());
    Ok(command)
}
