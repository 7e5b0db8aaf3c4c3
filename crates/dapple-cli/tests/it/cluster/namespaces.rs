//! Machines as network namespaces, where this test has the right to make them: links that are cut, in both directions, and mended.

use std::net::TcpListener;
use std::process::Command;

/// Namespaces on one bridge; removed when dropped.
pub(super) struct Network {
    tag: String,
    names: Vec<String>,
    third: u16,
}

impl Network {
    /// `None`, and a sentence, where the test may not make namespaces. The bridge has the address `10.99.B.254`, and the machines `10.99.B.1` and so on,
    /// where `B` is a number that no other test has.
    pub(super) fn make(names: &[&str]) -> Option<Network> {
        // The kernel gives a free port to one process at a time.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (tag, third) = (format!("dp{port:x}"), port % 250);
        let network = Network { tag, names: names.iter().map(|name| (*name).to_owned()).collect(), third };
        let bridge = network.bridge();
        let mut made = ip(&["link", "add", &bridge, "type", "bridge"])
            && ip(&["addr", "add", &format!("10.99.{third}.254/24"), "dev", &bridge])
            && ip(&["link", "set", &bridge, "up"]);
        for (number, name) in names.iter().enumerate() {
            let (space, outer) = (network.space(name), network.outer(name));
            made = made
                && ip(&["netns", "add", &space])
                && ip(&["link", "add", &outer, "type", "veth", "peer", "name", "eth0", "netns", &space])
                && ip(&["link", "set", &outer, "master", &bridge, "up"])
                && ip(&["-n", &space, "addr", "add", &format!("10.99.{third}.{}/24", number + 1), "dev", "eth0"])
                && ip(&["-n", &space, "link", "set", "eth0", "up"])
                && ip(&["-n", &space, "link", "set", "lo", "up"]);
        }
        if !made {
            println!("skipped: this test may not make network namespaces, bridges and veth here");
            return None;
        }
        Some(network)
    }

    fn bridge(&self) -> String {
        format!("{}-br", self.tag)
    }

    /// The namespace of a machine.
    pub(super) fn space(&self, name: &str) -> String {
        format!("{}-{name}", self.tag)
    }

    fn outer(&self, name: &str) -> String {
        format!("{}{name}", self.tag)
    }

    /// The address of the bridge, in the namespace of the test.
    pub(super) fn gateway(&self) -> String {
        format!("10.99.{}.254", self.third)
    }

    /// The address of a machine.
    pub(super) fn address(&self, name: &str) -> String {
        let number = self.names.iter().position(|one| one == name).expect("a machine") + 1;
        format!("10.99.{}.{number}", self.third)
    }

    /// Cuts the cable of a machine, or mends it.
    pub(super) fn cut(&self, name: &str, is_cut: bool) {
        assert!(ip(&["link", "set", &self.outer(name), if is_cut { "down" } else { "up" }]));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            let _none = ip(&["netns", "del", &self.space(name)]);
        }
        let _none = ip(&["link", "del", &self.bridge()]);
    }
}

fn ip(words: &[&str]) -> bool {
    let output = Command::new("ip").args(words).output();
    let is_done = output.as_ref().is_ok_and(|output| output.status.success());
    if !is_done {
        println!("ip {}: {output:?}", words.join(" "));
    }
    is_done
}
