//! The peers `dapple-small` and `dapple-own-scheduler`: the example `small_web_server`, built next
//! to this program, on Dapple's scheduler and on its own one.

use super::Setting;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// The program's path.
pub(super) fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the bench's own executable")?;
    let program = own.with_file_name("examples").join("small_web_server");
    if program.is_file() {
        return Ok(program);
    }
    let profile = if cfg!(debug_assertions) { "" } else { "--release " };
    bail!(
        "{} is not there: build it with `cargo build {profile}-p dapple --example small_web_server`",
        program.display()
    )
}

pub(super) fn command(setting: &Setting, port: u16, own_scheduler: bool) -> Result<Command> {
    let mut command = setting.command(&program()?)?;
    command.arg(setting.site.root()).arg("--port").arg(port.to_string());
    command.arg("--workers").arg(setting.workers.to_string()).arg("--cache-mb").arg(setting.cache_mb.to_string());
    if own_scheduler {
        command.arg("--own-scheduler");
    }
    Ok(command)
}
