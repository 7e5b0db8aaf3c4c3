//! Hosts that register themselves in a real etcd, if there is one. `cargo xtask etcd` fetches it.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dapple::stage::remote::{Discovery, Member, Members};

use super::{StageHost, send, until};
use crate::support::Site;

/// An etcd for this test; killed when dropped.
pub(crate) struct Etcd {
    child: Child,
    pub(crate) client: String,
    peer: String,
    site: Site,
    program: PathBuf,
}

impl Etcd {
    /// `None` without etcd; the variable `ETCD` gives its path.
    fn start() -> Option<Etcd> {
        Etcd::start_at("127.0.0.1")
    }

    /// At this address.
    pub(crate) fn start_at(ip: &str) -> Option<Etcd> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let in_path = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
        let own = std::env::var_os("ETCD").map(PathBuf::from);
        let Some(program) = own.into_iter().chain(in_path).find(|path| path.is_file()) else {
            assert!(std::env::var_os("ETCD").is_none(), "ETCD names no file");
            println!("SKIPPED: there is no etcd here; `cargo xtask etcd` gets it");
            return None;
        };
        let free = || TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap().to_string();
        let (client, peer, site) = (free(), free(), Site::new());
        let child = run(&program, &client, &peer, &site);
        Some(Etcd { child, client, peer, site, program })
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.child = run(&self.program, &self.client, &self.peer, &self.site);
    }
}

fn run(program: &PathBuf, client: &str, peer: &str, site: &Site) -> Child {
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(site.path.join("etcd"));
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn next(members: &mut Members) -> Member {
    let news = dapple::time::timeout(Duration::from_secs(60), members.next()).await;
    news.expect("there is news").expect("the runtime runs")
}

#[test]
fn hosts_join_and_leave_and_are_balanced_meanwhile() {
    let Some(mut etcd) = Etcd::start() else { return };
    // An endpoint that does not exist is skipped.
    let place = format!("etcd://127.0.0.1:1,{}/dapple/test", etcd.client);
    let runtime = dapple::builder().workers(2).build().unwrap();
    runtime.block_on(async {
        let discovery: Discovery = place.parse().unwrap();
        let mut members = discovery.members("echo");
        let register = ["--register", &place, "--ttl-s", "2"];
        let mut first = StageHost::start(&register);
        assert_eq!(next(&mut members).await, Member::Joined(first.address.clone()));
        let mut second = StageHost::start(&register);
        assert_eq!(next(&mut members).await, Member::Joined(second.address.clone()));

        let mut echo = discovery.balance::<String, String>("echo");
        until("both are found", || echo.balancer().serving_len() == 2).await;
        assert_eq!(send(&mut echo, "hello".to_owned()).await.unwrap(), "hello");

        // A killed host is forgotten after its time to live; a stopped one at once.
        first.child.kill().unwrap();
        assert_eq!(next(&mut members).await, Member::Left(first.address.clone()));
        second.signal("TERM");
        assert_eq!(next(&mut members).await, Member::Left(second.address.clone()));
        assert!(second.wait().success());

        // A successor takes the entry over, and clients notice nothing.
        let mut third = StageHost::start(&register);
        assert_eq!(next(&mut members).await, Member::Joined(third.address.clone()));
        let fourth = StageHost::start_at(&third.address, &["--register", &place, "--ttl-s", "2", "--take-over"]);
        assert!(third.wait().success());

        // Without etcd everything continues; after its return, changes arrive again.
        etcd.kill();
        until("both are out", || echo.balancer().len() == 1).await;
        assert_eq!(send(&mut echo, "still".to_owned()).await.unwrap(), "still");
        etcd.restart();
        let fifth = StageHost::start(&register);
        assert_eq!(next(&mut members).await, Member::Joined(fifth.address.clone()));
        until("the new one is found", || echo.balancer().serving_len() == 2).await;
        drop((fourth, fifth));
    });
}
