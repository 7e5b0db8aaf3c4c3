//! Three members of etcd in a network namespace, which fail one after the other.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::etcd;
use crate::torture::must;
use crate::workspace::Workspace;

const MEMBERS: usize = 3;
/// Longer than an election takes, and shorter than the lease of the store's owner.
const FAULT: Duration = Duration::from_secs(2);
const CALM: Duration = Duration::from_millis(700);
/// After all members: longer than a lease, which etcd begins anew at each election. The next process of the store waits for its end.
const LONG_CALM: Duration = Duration::from_secs(13);

/// The failure of one member, while the others go on.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGKILL; it starts again with its files.
    Kill,
    /// SIGSTOP.
    Stop,
    /// The others' packets to it are lost, its own arrive.
    NothingFromPeers,
    /// The packets of clients to it are lost, its answers arrive.
    NothingFromClients,
}

const FAULTS: [Fault; 4] = [Fault::Kill, Fault::Stop, Fault::NothingFromPeers, Fault::NothingFromClients];

/// Members that end when this is dropped.
pub(super) struct Cluster {
    program: PathBuf,
    folder: PathBuf,
    members: Vec<Member>,
}

struct Member {
    client: u16,
    peer: u16,
    child: Child,
}

/// Whether this process has a network of its own: the faults drop packets there.
pub(super) fn is_in_namespace() -> bool {
    std::env::var_os(NAMESPACE).is_some()
}

/// Says what is missing for a cluster.
pub(super) fn check_needs() -> Result<(), String> {
    let mut probe = unshare()?;
    probe
        .args(["sh", "-c", "ip link set lo up && nft add table inet torture"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match probe.status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err("it needs a network namespace, and the programs ip (iproute2) and nft (nftables)".to_owned()),
    }
}

/// Runs this program again, in a network namespace.
pub(super) fn in_namespace(args: &[&str]) -> Result<bool, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let status = unshare()?.arg(program).arg("store-torture").args(args).env(NAMESPACE, "1").status();
    Ok(status.map_err(|error| format!("cannot run unshare: {error}"))?.success())
}

fn unshare() -> Result<Command, String> {
    let is_root = Command::new("unshare").args(["--net", "true"]).stderr(Stdio::null()).status();
    let is_root = is_root.map_err(|error| format!("cannot run unshare, of util-linux: {error}"))?.success();
    let mut unshare = Command::new("unshare");
    unshare.arg("--net");
    if !is_root {
        // A user namespace, too.
        unshare.arg("--map-root-user");
    }
    Ok(unshare)
}

impl Cluster {
    /// The members, which may not have elected a leader yet.
    pub(super) fn start(workspace: &Workspace, folder: PathBuf) -> Result<Cluster, String> {
        must(Command::new("ip").args(["link", "set", "lo", "up"]))?;
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let program = etcd::program(workspace)?;
        let free: Vec<TcpListener> = (0..2 * MEMBERS)
            .map(|_| TcpListener::bind("127.0.0.1:0"))
            .collect::<Result<_, _>>()
            .map_err(|error| format!("there is no free port: {error}"))?;
        let ports: Vec<u16> = free.iter().filter_map(|free| free.local_addr().ok()).map(|addr| addr.port()).collect();
        drop(free);
        let (clients, peers) = ports.split_at(MEMBERS);
        let mut cluster = Cluster { program, folder, members: Vec::new() };
        for (number, (&client, &peer)) in clients.iter().zip(peers).enumerate() {
            let child = cluster.spawn(number, client, peers)?;
            cluster.members.push(Member { client, peer, child });
        }
        Ok(cluster)
    }

    /// The URL of a store of this name.
    pub(super) fn url(&self, name: &str) -> String {
        let members: Vec<String> = self.members.iter().map(|member| format!("127.0.0.1:{}", member.client)).collect();
        format!("etcd://{}/{name}", members.join(","))
    }

    fn spawn(&self, number: usize, client: u16, peers: &[u16]) -> Result<Child, String> {
        let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{}", peers[number]));
        let all: Vec<String> =
            peers.iter().enumerate().map(|(number, port)| format!("m{number}=http://127.0.0.1:{port}")).collect();
        let mut command = Command::new(&self.program);
        command.args(["--name", &format!("m{number}"), "--data-dir"]).arg(self.folder.join(number.to_string()));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &all.join(","), "--log-level", "error"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        child.map_err(|error| format!("{}: {error}", self.program.display()))
    }

    /// Lets one member after the other fail, until it is told that it is over. Returns the number of faults. At its end, all
    /// members are well.
    pub(super) fn fail(&mut self, is_over: &AtomicBool) -> Result<usize, String> {
        let mut number = 0_usize;
        while !is_over.load(Relaxed) {
            if number > 0 && number.is_multiple_of(MEMBERS) {
                wait(LONG_CALM, is_over);
            }
            // Each member meets each fault.
            let fault = FAULTS[(number / MEMBERS) % FAULTS.len()];
            let member = number % MEMBERS;
            self.begin(fault, member)?;
            std::thread::sleep(FAULT);
            self.end(fault, member)?;
            std::thread::sleep(CALM);
            number += 1;
        }
        Ok(number)
    }

    fn begin(&mut self, fault: Fault, number: usize) -> Result<(), String> {
        let member = &mut self.members[number];
        match fault {
            Fault::Kill => {
                member.child.kill().map_err(|error| format!("cannot kill a member: {error}"))?;
                member.child.wait().map(drop).map_err(|error| format!("cannot wait for a member: {error}"))
            }
            Fault::Stop => signal("-STOP", &member.child),
            Fault::NothingFromPeers => drop_packets_to(member.peer),
            Fault::NothingFromClients => drop_packets_to(member.client),
        }
    }

    fn end(&mut self, fault: Fault, number: usize) -> Result<(), String> {
        match fault {
            Fault::Kill => {
                let peers: Vec<u16> = self.members.iter().map(|member| member.peer).collect();
                self.members[number].child = self.spawn(number, self.members[number].client, &peers)?;
                Ok(())
            }
            Fault::Stop => signal("-CONT", &self.members[number].child),
            Fault::NothingFromPeers | Fault::NothingFromClients => {
                must(Command::new("nft").args(["flush", "chain", "inet", "torture", "out"]))
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

/// Returns before the time is over if all is.
fn wait(time: Duration, is_over: &AtomicBool) {
    let until = Instant::now() + time;
    while !is_over.load(Relaxed) && Instant::now() < until {
        std::thread::sleep(CALM);
    }
}

fn drop_packets_to(port: u16) -> Result<(), String> {
    let rules = format!(
        "add table inet torture; add chain inet torture out {{ type filter hook output priority 0; }}; \
         add rule inet torture out tcp dport {port} drop"
    );
    must(Command::new("nft").arg(rules))
}

fn signal(name: &str, child: &Child) -> Result<(), String> {
    must(Command::new("kill").args([name, &child.id().to_string()]))
}

/// Set inside of the namespace.
const NAMESPACE: &str = "DAPPLE_TORTURE_NAMESPACE";
