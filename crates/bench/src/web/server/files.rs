//! The peers `dapple-files` and `rclone`: the same folder over WebDAV.

use super::certificate::Certificate;
use super::{Setting, dapple};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// The field by which the load logs in; all servers but `dapple files` ignore it.
pub(in crate::web) const LOGIN: &str = "authorization: Bearer only-for-this-trial";

pub(super) fn command(setting: &Setting, port: u16, certificate: Option<&Certificate>) -> Result<Command> {
    let mut command = setting.command(&dapple::program()?)?;
    let addr = format!("127.0.0.1:{port}");
    command.arg("files").arg(setting.site.root()).arg("--read-only").args(["--addr", &addr]);
    command.args(["--token", "only-for-this-trial", "--workers", &setting.workers.to_string()]);
    match certificate {
        Some(certificate) => command.arg("--tls-cert").arg(&certificate.chain).arg("--tls-key").arg(&certificate.key),
        None => command.arg("--plain"),
    };
    Ok(command)
}

/// rclone with as many threads of Go as workers, and no cache of its own between it and the kernel's.
pub(super) fn rclone(setting: &Setting, port: u16, certificate: Option<&Certificate>) -> Result<Command> {
    let program = super::find_program("rclone").context("rclone is not installed")?;
    let mut command = setting.command(Path::new(&program))?;
    command.args(["serve", "webdav", "--read-only", "--config", "/dev/null", "--addr", &format!("127.0.0.1:{port}")]);
    if let Some(certificate) = certificate {
        command.arg("--cert").arg(&certificate.chain).arg("--key").arg(&certificate.key);
    }
    command.arg(setting.site.root()).env("GOMAXPROCS", setting.workers.to_string());
    Ok(command)
}
