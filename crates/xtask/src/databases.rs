//! `cargo xtask databases`: sqlx with a real PostgreSQL and redis with a real redis-server, in
//! Dapple's tasks. Also installs the other programs that the tests start.

use crate::apt;
use crate::workspace::cargo;
use std::path::PathBuf;

/// For `cargo xtask databases`: installs missing servers, and runs the tests that start them.
pub(crate) fn run() -> Result<bool, String> {
    install(&SERVERS)?;
    let mut command = cargo();
    command.args(["test", "--package", "ecosystem", "--test", "it", "servers::"]);
    let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    Ok(status.success())
}

/// For `cargo xtask test`, before its tests, which find the servers and the clients of the network's tests themselves. A missing server
/// is an error in CI; elsewhere the tests that need it are skipped, and report that.
pub(crate) fn install_if_missing() -> Result<bool, String> {
    match install(&SERVERS) {
        Err(problem) if std::env::var_os("CI").is_none() => println!("databases: SKIPPED, {problem}"),
        outcome => outcome?,
    }
    // Not every system has them as packages; the tests say that they skip.
    if let Err(problem) = install(&CLIENTS) {
        println!("databases: {problem}");
    }
    Ok(true)
}

fn install(programs: &[(&str, &str, &str)]) -> Result<(), String> {
    for &(variable, name, package) in programs {
        if is_there(variable, name) {
            continue;
        }
        if !apt::install("databases", &[package]) || !is_there(variable, name) {
            return Err(format!(
                "there is no {name}; `apt-get install {package}` or your system's way installs it, and {variable}=/path/to/{name} says where it is"
            ));
        }
    }
    Ok(())
}

fn is_there(variable: &str, name: &str) -> bool {
    let own = std::env::var_os(variable).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join(name));
    // Debian has one folder for each version of PostgreSQL, none of them on the path.
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let in_versions = versions.map(|version| version.path().join("bin").join(name));
    own.into_iter().chain(in_path).chain(in_versions).any(|path| path.is_file())
}

/// The variable with its path, the program, and Debian's package.
const SERVERS: [(&str, &str, &str); 2] =
    [("POSTGRES", "postgres", "postgresql"), ("REDIS_SERVER", "redis-server", "redis-server")];
/// Clients that talk to TCP in user space.
const CLIENTS: [(&str, &str, &str); 2] = [("WRK", "wrk", "wrk"), ("IPERF3", "iperf3", "iperf3")];
