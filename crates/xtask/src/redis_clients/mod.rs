//! `cargo xtask redis-clients`: redis-cli, redis-py and ioredis against `dapple store serve`, each with a basic suite.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::apt;
use crate::served;
use crate::workspace::Workspace;

/// For `cargo xtask redis-clients`: a client that cannot be installed is an error.
pub(crate) fn run() -> Result<bool, String> {
    let mut all_good = true;
    let clients = Clients::new()?;
    for client in Client::ALL {
        let command = clients.command(client)?;
        all_good &= clients.check(client, command)?;
    }
    Ok(all_good)
}

#[derive(Clone, Copy)]
enum Client {
    RedisCli,
    RedisPy,
    IoRedis,
}

impl Client {
    const ALL: [Client; 3] = [Client::RedisCli, Client::RedisPy, Client::IoRedis];

    fn name(self) -> &'static str {
        match self {
            Client::RedisCli => "redis-cli",
            Client::RedisPy => "redis-py",
            Client::IoRedis => "ioredis",
        }
    }
}

struct Clients {
    dapple: PathBuf,
    sources: PathBuf,
    folder: PathBuf,
}

impl Clients {
    fn new() -> Result<Clients, String> {
        let workspace = Workspace::own()?;
        // A program that is built already saves time.
        let dapple = match std::env::var_os("DAPPLE") {
            Some(dapple) => dapple.into(),
            None => served::build(&workspace)?,
        };
        let folder = workspace.target.join("redis-clients");
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Clients { dapple, sources: workspace.root.join("crates/xtask/src/redis_clients"), folder })
    }

    /// The command that runs a client's suite; its only argument is the port.
    fn command(&self, client: Client) -> Result<Command, String> {
        match client {
            Client::RedisCli => {
                let is_there = || Command::new("redis-cli").arg("--version").stdout(Stdio::null()).status().is_ok();
                let can_install = || apt::install("redis-clients", &["redis-tools"]);
                if !(is_there() || can_install() && is_there()) {
                    return Err("redis-cli is missing; `apt-get install redis-tools` installs it".to_owned());
                }
                let mut command = Command::new("redis-cli");
                command.arg("-p");
                Ok(command)
            }
            Client::RedisPy => {
                let python = self.folder.join("python/bin/python");
                if !python.is_file() {
                    must(Command::new("python3").args(["-m", "venv"]).arg(self.folder.join("python")))?;
                    must(Command::new(&python).args(["-m", "pip", "install", "--quiet", "redis"]))?;
                }
                let mut command = Command::new(python);
                command.arg(self.sources.join("suite.py"));
                Ok(command)
            }
            Client::IoRedis => {
                // Node looks for modules in the folder of the program that imports them.
                let suite = self.folder.join("suite.mjs");
                std::fs::copy(self.sources.join("suite.mjs"), &suite)
                    .map_err(|error| format!("{}: {error}", suite.display()))?;
                if !self.folder.join("node_modules/ioredis").is_dir() {
                    let mut npm = Command::new("npm");
                    npm.args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"]).arg(&self.folder);
                    must(npm.arg("ioredis").stdin(Stdio::null()))?;
                }
                let mut command = Command::new("node");
                command.arg(suite);
                Ok(command)
            }
        }
    }

    fn check(&self, client: Client, mut command: Command) -> Result<bool, String> {
        let server = Server::start(&self.dapple, &self.folder.join("store"))?;
        command.arg(&server.port);
        let passed = match client {
            Client::RedisCli => redis_cli(command)?,
            Client::RedisPy | Client::IoRedis => {
                command.status().map_err(|error| format!("cannot run {command:?}: {error}"))?.success()
            }
        };
        println!("redis-clients: {} {}", client.name(), if passed { "passed" } else { "FAILED" });
        Ok(passed)
    }
}

/// Runs the commands of redis-cli's suite, and compares what it prints.
fn redis_cli(mut command: Command) -> Result<bool, String> {
    let failed = |error| format!("cannot run redis-cli: {error}");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let commands: String = REDIS_CLI.iter().map(|(command, _)| format!("{command}\n")).collect();
    let mut input = child.stdin.take().ok_or("redis-cli has no input")?;
    input.write_all(commands.as_bytes()).map_err(failed)?;
    drop(input);
    let output = child.wait_with_output().map_err(failed)?;
    let found = String::from_utf8_lossy(&output.stdout).replace("\n\n", "\n");
    let expected: String = REDIS_CLI.iter().map(|(_, reply)| format!("{reply}\n")).collect();
    for (found, expected) in found.lines().zip(expected.lines()).filter(|(found, expected)| found != expected) {
        println!("redis-clients: redis-cli printed {found:?}, not {expected:?}");
    }
    Ok(found == expected && output.status.success())
}

/// Commands, and redis-cli's output for them if that is not a terminal.
const REDIS_CLI: &[(&str, &str)] = &[
    ("PING", "PONG"),
    ("FLUSHALL", "OK"),
    ("SET color red", "OK"),
    ("GET color", "red"),
    ("SET color blue NX GET", "red"),
    ("INCRBY number 41", "41"),
    ("INCR number", "42"),
    ("INCR color", "ERR value is not an integer or out of range"),
    ("APPEND color dish", "7"),
    ("GETRANGE color 0 2", "red"),
    ("MSET a 1 b 2", "OK"),
    ("MGET a b", "1\n2"),
    ("HSET hash x 1 y 2", "2"),
    ("HGETALL hash", "x\n1\ny\n2"),
    ("GET hash", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("EXPIRE a 100", "1"),
    ("PERSIST a", "1"),
    ("TYPE hash", "hash"),
    ("DBSIZE", "5"),
    ("MULTI", "OK"),
    ("INCR number", "QUEUED"),
    ("DEL a b", "QUEUED"),
    ("EXEC", "43\n2"),
    ("NOSUCH", "ERR unknown command 'NOSUCH', with args beginning with: "),
];

/// `dapple store serve`, ended when dropped.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(dapple: &Path, store: &Path) -> Result<Server, String> {
        let mut command = Command::new(dapple);
        command.args(["store", "serve", "--port", "0"]).arg(format!("redb:{}", store.display()));
        let child = command.stdout(Stdio::piped()).spawn();
        let mut server = Server { child: child.map_err(|error| format!("{command:?}: {error}"))?, port: String::new() };
        let mut line = String::new();
        let output = server.child.stdout.take().ok_or("the server has no output")?;
        BufReader::new(output).read_line(&mut line).map_err(|error| format!("cannot read what it says: {error}"))?;
        let addr = line.strip_prefix("listening on ").and_then(|rest| rest.split(',').next());
        let port = addr.and_then(|addr| addr.rsplit(':').next()).ok_or_else(|| format!("it said {line:?}"))?;
        server.port = port.to_owned();
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn must(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} failed: {status}")),
        Err(error) => Err(format!("cannot run {command:?}: {error}")),
    }
}
