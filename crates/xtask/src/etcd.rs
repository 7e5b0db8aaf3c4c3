//! `cargo xtask etcd`: stage hosts that register themselves, with a real etcd.

use crate::suite;
use crate::workspace::{Workspace, cargo};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// For `cargo xtask etcd`: an etcd that cannot be had is an error.
pub(crate) fn run() -> Result<bool, String> {
    let workspace = Workspace::own()?;
    match find(&workspace).or_else(|| download(&workspace)) {
        Some(etcd) => test(&etcd),
        None => Err(format!("there is no etcd; {INSTALL}")),
    }
}

/// For `cargo xtask test`: where etcd cannot be had, the check is left out.
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

/// The tests start it themselves; this says where it is.
fn test(etcd: &Path) -> Result<bool, String> {
    let mut command = cargo();
    // As all tests are built; those of other packages are none by this name.
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

/// Of a Debian package, which is unpacked and not installed: nothing of the system changes, and no service starts.
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
