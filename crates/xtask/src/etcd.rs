//! `cargo xtask etcd`: stage hosts that register themselves, with a real etcd.

use crate::suite;
use crate::workspace::{Workspace, cargo};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// For `cargo xtask etcd`: a missing etcd is an error.
pub(crate) fn run() -> Result<bool, String> {
    let workspace = Workspace::own()?;
    match find(&workspace).or_else(|| download(&workspace)) {
        Some(etcd) => test(&etcd),
        None => Err(format!("there is no etcd; {INSTALL}")),
    }
}

/// For `cargo xtask test`: skips the check without etcd.
pub(crate) fn run_if_there() -> Result<bool, String> {
    let workspace = Workspace::own()?;
    match find(&workspace).or_else(|| download(&workspace)) {
        Some(etcd) => test(&etcd),
        None => {
            println!("etcd: SKIPPED, it cannot be had here; {INSTALL}");
            Ok(true)
        }
    }
}

/// The tests start etcd themselves; this gives them its path.
fn test(etcd: &Path) -> Result<bool, String> {
    let mut command = cargo();
    // Built like all tests; no test of another package has this name.
    command.arg("test").args(suite::ALL.split(' ')).args(["--test", "it", "stage_host::etcd"]).env("ETCD", etcd);
    let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    Ok(status.success())
}

fn find(workspace: &Workspace) -> Option<PathBuf> {
    let own = std::env::var_os("ETCD").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
    own.into_iter().chain(in_path).chain([unpacked(workspace)]).find(|path| path.is_file())
}

/// From a Debian package, which is unpacked and not installed: the system does not change, and no
/// service starts.
fn download(workspace: &Workspace) -> Option<PathBuf> {
    let folder = folder(workspace);
    std::fs::create_dir_all(&folder).ok()?;
    println!("etcd: apt-get download {PACKAGE}, into {}", folder.display());
    let mut apt = Command::new("apt-get");
    apt.args(["download", PACKAGE]).current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null());
    apt.status().ok().filter(|status| status.success())?;
    let mut files = std::fs::read_dir(&folder).ok()?.flatten().map(|file| file.path());
    let package = files.find(|path| path.extension().is_some_and(|extension| extension == "deb"))?;
    let unpack = Command::new("dpkg").arg("-x").arg(&package).arg(&folder).status();
    unpack.ok().filter(|status| status.success())?;
    Some(unpacked(workspace)).filter(|path| path.is_file())
}

fn unpacked(workspace: &Workspace) -> PathBuf {
    folder(workspace).join("usr/bin/etcd")
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("etcd")
}

const PACKAGE: &str = "etcd-server";

const INSTALL: &str =
    "`apt-get install etcd-server` or your system's way installs it, and ETCD=/path/to/etcd says where it is";
