//! `cargo xtask etcd`: the etcd client, and stage hosts that register themselves, with a real etcd.
//!
//! `xtask/etcd/go.mod` says which etcd; Go builds it from its modules once, into `target/etcd`. Without Go, the one of the system or of Debian
//! serves.

use crate::suite;
use crate::workspace::{Workspace, cargo};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The programs of one version.
struct Etcd {
    etcd: PathBuf,
    /// Tests of users need it.
    etcdctl: Option<PathBuf>,
}

/// For `cargo xtask etcd`: a missing etcd is an error.
pub(crate) fn run() -> Result<bool, String> {
    let workspace = Workspace::own()?;
    match find(&workspace) {
        Some(etcd) => test(&etcd),
        None => Err(format!("there is no etcd; {INSTALL}")),
    }
}

/// An etcd for other checks.
pub(crate) fn program(workspace: &Workspace) -> Result<PathBuf, String> {
    find(workspace).map(|etcd| etcd.etcd).ok_or_else(|| format!("there is no etcd; {INSTALL}"))
}

/// For `cargo xtask test`: skips the check without etcd.
pub(crate) fn run_if_there() -> Result<bool, String> {
    let workspace = Workspace::own()?;
    match find(&workspace) {
        Some(etcd) => test(&etcd),
        None => {
            println!("etcd: SKIPPED, it cannot be had here; {INSTALL}");
            Ok(true)
        }
    }
}

/// The tests start it themselves, from this path.
fn test(etcd: &Etcd) -> Result<bool, String> {
    println!("etcd: {}", etcd.etcd.display());
    let mut command = cargo();
    // Built like all tests, so that nothing is built twice; those of other packages have none of
    // these names.
    command.arg("test").args(suite::ALL.split(' ')).args(["--test", "it", "--", "real_etcd::", "stage_host::etcd"]);
    command.env("ETCD", &etcd.etcd);
    if let Some(etcdctl) = &etcd.etcdctl {
        command.env("ETCDCTL", etcdctl);
    }
    let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    Ok(status.success())
}

/// The etcd that the variable `ETCD` names, the one that Go builds, the one of the system, or
/// Debian's.
fn find(workspace: &Workspace) -> Option<Etcd> {
    let own = std::env::var_os("ETCD")
        .map(|etcd| Etcd { etcd: etcd.into(), etcdctl: std::env::var_os("ETCDCTL").map(PathBuf::from) });
    own.or_else(|| build(workspace)).or_else(in_path).or_else(|| download(workspace)).filter(|etcd| etcd.etcd.is_file())
}

fn in_path() -> Option<Etcd> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    Some(Etcd { etcd: find("etcd")?, etcdctl: find("etcdctl") })
}

/// Builds what `go.mod` names, unless it is there.
fn build(workspace: &Workspace) -> Option<Etcd> {
    let module = workspace.root.join("crates/xtask/etcd");
    let text = std::fs::read_to_string(module.join("go.mod")).ok()?;
    let version = text.lines().find_map(|line| line.trim().strip_prefix("go.etcd.io/etcd/server/v3 "))?;
    let version = version.split_whitespace().next()?;
    let folder = folder(workspace).join(version);
    let built = Etcd { etcd: folder.join("etcd"), etcdctl: Some(folder.join("etcdctl")) };
    for (program, package) in [("etcdctl", "go.etcd.io/etcd/etcdctl/v3"), ("etcd", "go.etcd.io/etcd/server/v3")] {
        let to = folder.join(program);
        if !to.is_file() {
            println!(
                "etcd: go build {package} {version}, into {}; this takes some minutes the first time",
                to.display()
            );
            let mut go = Command::new("go");
            // Go as it is installed: it downloads modules, and no other Go.
            go.args(["build", "-trimpath", "-o"])
                .arg(&to)
                .arg(package)
                .current_dir(&module)
                .env("GOTOOLCHAIN", "local");
            go.status().ok().filter(|status| status.success())?;
        }
    }
    Some(built)
}

/// From a Debian package, which is unpacked and not installed: the system does not change, and no
/// service starts.
fn download(workspace: &Workspace) -> Option<Etcd> {
    let folder = folder(workspace);
    let unpacked = Etcd { etcd: folder.join("usr/bin/etcd"), etcdctl: None };
    if unpacked.etcd.is_file() {
        return Some(unpacked);
    }
    std::fs::create_dir_all(&folder).ok()?;
    println!("etcd: apt-get download {PACKAGE}, into {}", folder.display());
    let mut apt = Command::new("apt-get");
    apt.args(["download", PACKAGE]).current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null());
    apt.status().ok().filter(|status| status.success())?;
    let mut files = std::fs::read_dir(&folder).ok()?.flatten().map(|file| file.path());
    let package = files.find(|path| path.extension().is_some_and(|extension| extension == "deb"))?;
    let unpack = Command::new("dpkg").arg("-x").arg(&package).arg(&folder).status();
    unpack.ok().filter(|status| status.success())?;
    Some(unpacked)
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("etcd")
}

const PACKAGE: &str = "etcd-server";

const INSTALL: &str = "with Go 1.26 it is built from its modules; `apt-get install etcd-server` or your system's way installs it, and \
    ETCD=/path/to/etcd says where it is";
