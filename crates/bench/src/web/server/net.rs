//! Two machines on one: network namespaces with an interface between them.
//!
//! ```text
//!   dapple-own-tcp:  [ load, kernel's TCP, 10.7.0.2 ]── TUN ──( dapple serve --net, 10.7.0.1 )     one namespace
//!   dapple-own-veth: [ load, kernel's TCP, 10.7.0.2 ]── veth ──( dapple serve --net, 10.7.0.1 )     two namespaces
//!   dapple-veth:     [ load, kernel's TCP, 10.7.0.2 ]── veth ──[ dapple serve, kernel's TCP, 10.7.0.1 ]    two namespaces
//! ```

use crate::experiment::Peer;
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};

/// The fate of packets between the two.
#[derive(Clone, Copy)]
pub(in crate::web) struct Weather {
    /// Packets of a hundred that are lost, in each direction.
    pub(in crate::web) loss_percent: u32,
    /// Beginnings of connections a second, from addresses that never answer.
    pub(in crate::web) flood_per_s: u32,
}

impl Weather {
    pub(in crate::web) const FAIR: Weather = Weather { loss_percent: 0, flood_per_s: 0 };
}

/// The namespaces of one trial; removed when dropped.
pub(super) struct Net {
    near: Namespace,
    /// Where the server's kernel is another one than the load's.
    far: Option<Namespace>,
}

/// A network namespace, by its name.
struct Namespace(String);

impl Net {
    /// Makes the namespaces for a peer; `None` for a peer that listens on the loopback address.
    pub(super) fn of(peer: Peer, workers: usize, weather: Weather) -> Result<Option<Net>> {
        let near = || Namespace::add("near");
        let net = match peer {
            Peer::DappleOwnTcp => {
                let near = near()?;
                let queues: &[&str] = if workers > 1 { &["multi_queue"] } else { &[] };
                near.ip(&[&["tuntap", "add", INTERFACE, "mode", "tun"], queues].concat())?;
                // By default 500 packets wait for the program, and each packet beyond them costs its connection a second.
                near.ip(&["link", "set", INTERFACE, "txqueuelen", "10000"])?;
                Net { near, far: None }
            }
            Peer::DappleVeth | Peer::DappleOwnVeth => {
                let (near, far) = (near()?, Namespace::add("far")?);
                near.ip(&["link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", &far.0])?;
                match peer {
                    Peer::DappleVeth => far.address(SERVER)?,
                    _ => far.ip(&["link", "set", INTERFACE, "up"])?,
                }
                Net { near, far: Some(far) }
            }
            _ => return Ok(None),
        };
        net.near.address(CLIENT)?;
        if weather.loss_percent > 0 {
            net.near.lose(weather.loss_percent)?;
        }
        Ok(Some(net))
    }

    /// The value of `--net` for a peer with TCP of its own.
    pub(super) fn option_of(peer: Peer) -> Option<String> {
        let kind = match peer {
            Peer::DappleOwnTcp => "tun",
            Peer::DappleOwnVeth => "packet",
            _ => return None,
        };
        Some(format!("{kind}:{INTERFACE},{SERVER}/24"))
    }

    /// Why there can be none here.
    pub(super) fn obstacle() -> Option<String> {
        let tried = Command::new("unshare").args(["--net", "ip", "tuntap", "add", "probe0", "mode", "tun"]).output();
        let works = tried.is_ok_and(|output| output.status.success());
        (!works).then(|| "it needs root, /dev/net/tun, and the programs unshare and ip".to_owned())
    }

    /// The command, run at the server's side.
    pub(super) fn at_server(&self, command: Command) -> Command {
        self.far.as_ref().unwrap_or(&self.near).inside(command)
    }

    /// The command, run at the load's side.
    pub(super) fn at_load(&self, command: Command) -> Command {
        self.near.inside(command)
    }
}

impl Namespace {
    fn add(side: &str) -> Result<Namespace> {
        let name = format!("dapple-bench-{}-{side}", std::process::id());
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let added = Namespace(name);
        added.ip(&["link", "set", "lo", "up"])?;
        Ok(added)
    }

    fn ip(&self, args: &[&str]) -> Result<()> {
        run(Command::new("ip").args(["-n", &self.0]).args(args))
    }

    fn address(&self, address: &str) -> Result<()> {
        self.ip(&["addr", "add", &format!("{address}/24"), "dev", INTERFACE])?;
        self.ip(&["link", "set", INTERFACE, "up"])
    }

    /// Loses packets that come from the interface, and that go to it.
    fn lose(&self, percent: u32) -> Result<()> {
        for (hook, direction) in [("input", "iifname"), ("output", "oifname")] {
            let chain = format!("{{ type filter hook {hook} priority 0; }}");
            let drop = format!("{direction} {INTERFACE} numgen random mod 100 < {percent} drop");
            for line in [
                "add table ip weather".to_owned(),
                format!("add chain ip weather {hook} {chain}"),
                format!("add rule ip weather {hook} {drop}"),
            ] {
                run(Command::new("ip").args(["netns", "exec", &self.0, "nft", &line]))?;
            }
        }
        Ok(())
    }

    fn inside(&self, command: Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.0]).arg(command.get_program()).args(command.get_args());
        inside
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its programs have ended; if not, it goes with the last of them.
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// The address of the server.
pub(super) const SERVER: &str = "10.7.0.1";
const CLIENT: &str = "10.7.0.2";
pub(super) const INTERFACE: &str = "bench0";
