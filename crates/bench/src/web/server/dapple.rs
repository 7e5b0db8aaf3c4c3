//! The peers `dapple`, `dapple-serial` and `dapple-copies`: the program built next to this one.

use super::certificate::Certificate;
use super::{Setting, net};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// The program's path.
pub(crate) fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the bench's own executable")?;
    let program = own.with_file_name("dapple");
    if program.is_file() {
        return Ok(program);
    }
    let profile = if cfg!(debug_assertions) { "" } else { "--release " };
    bail!("{} is not there: build it with `cargo build {profile}-p dapple-cli`", program.display())
}

pub(super) fn command(
    setting: &Setting,
    port: u16,
    certificate: Option<&Certificate>,
    serial: bool,
) -> Result<Command> {
    let mut command = setting.command(&program()?)?;
    arguments(&mut command, setting, port, serial);
    if let Some(certificate) = certificate {
        command.arg("--tls-cert").arg(&certificate.chain).arg("--tls-key").arg(&certificate.key);
    }
    Ok(command)
}

/// The server of a network of its own: on TCP of its own, with this `--net`, or on the kernel's. Its clients come from one address.
pub(super) fn command_apart(setting: &Setting, own_tcp: Option<String>) -> Result<Command> {
    let mut command = setting.command(&program()?)?;
    command.arg("serve").arg(setting.site.root());
    command.arg("--workers").arg(setting.workers.to_string()).arg("--cache-mb").arg(setting.cache_mb.to_string());
    command.args(["--connections-max", "16000", "--connections-per-client", "0"]);
    match own_tcp {
        Some(own) => command.args(["--net", &own, "--port", &PORT_APART.to_string()]),
        None => command.args(["--addr", &format!("{}:{PORT_APART}", net::SERVER)]),
    };
    Ok(command)
}

/// The port of the server of a network of its own.
pub(super) const PORT_APART: u16 = 8080;

/// Appends the server's arguments, but those of TLS, to a command that starts its program.
pub(in crate::web) fn arguments(command: &mut Command, setting: &Setting, port: u16, serial: bool) {
    command.arg("serve").arg(setting.site.root()).arg("--port").arg(port.to_string());
    command.arg("--workers").arg(setting.workers.to_string()).arg("--cache-mb").arg(setting.cache_mb.to_string());
    if serial {
        command.arg("--serial");
    }
}
