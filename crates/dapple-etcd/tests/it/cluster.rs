//! A cluster of etcd on loopback.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dapple_etcd::{Etcd, EtcdBuilder, Put};
use dapple_io::time::sleep;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Members that are killed when this is dropped.
pub(crate) struct Cluster {
    program: PathBuf,
    members: Vec<Member>,
    tls: Option<Tls>,
    folder: TempDir,
}

struct Member {
    client: String,
    peer: String,
    child: Child,
}

/// A certificate for 127.0.0.1, signed by itself.
pub(crate) struct Tls {
    pub(crate) certificate: rcgen::Certificate,
}

impl Cluster {
    /// `None` if there is no etcd.
    pub(crate) fn start(count: usize) -> Option<Cluster> {
        Cluster::start_with(count, false)
    }

    pub(crate) fn start_with(count: usize, is_encrypted: bool) -> Option<Cluster> {
        let program = program()?;
        let folder = tempfile::tempdir().unwrap();
        let tls = is_encrypted.then(|| Tls::write(folder.path()));
        // All at once, so that no port is chosen twice.
        let free: Vec<TcpListener> = (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<String> = free.iter().map(|free| free.local_addr().unwrap().to_string()).collect();
        drop(free);
        let peers: Vec<String> = addresses[count..].to_vec();
        let mut cluster = Cluster { program, members: Vec::new(), tls, folder };
        for (client, peer) in addresses.into_iter().zip(&peers) {
            let child = cluster.spawn(cluster.members.len(), &client, peer, &peers);
            cluster.members.push(Member { client, peer: peer.clone(), child });
        }
        Some(cluster)
    }

    fn spawn(&self, number: usize, client: &str, peer: &str, peers: &[String]) -> Child {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let (client, peer) = (format!("{scheme}://{client}"), format!("http://{peer}"));
        let initial = peers.iter().enumerate().map(|(number, peer)| format!("m{number}=http://{peer}"));
        let mut command = Command::new(&self.program);
        command
            .args(["--name", &format!("m{number}")])
            .arg("--data-dir")
            .arg(self.folder.path().join(number.to_string()));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &initial.collect::<Vec<_>>().join(","), "--log-level", "error"]);
        if self.tls.is_some() {
            command.arg("--cert-file").arg(self.folder.path().join("cert.pem"));
            command.arg("--key-file").arg(self.folder.path().join("key.pem"));
        }
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Where the members listen.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.members.iter().map(|member| format!("{scheme}://{}", member.client)).collect()
    }

    pub(crate) fn tls(&self) -> &Tls {
        self.tls.as_ref().unwrap()
    }

    /// A client, once the cluster takes writes.
    pub(crate) async fn client(&self) -> Etcd {
        self.ready(Etcd::builder(self.endpoints())).await
    }

    pub(crate) async fn ready(&self, builder: EtcdBuilder) -> Etcd {
        let etcd = builder.timeout(DEADLINE).build().unwrap();
        while let Err(error) = etcd.put(Put::new("ready", "")).await {
            assert!(error.reason().is_none(), "{error}");
            sleep(Duration::from_millis(50)).await;
        }
        etcd
    }

    pub(crate) fn kill(&mut self, number: usize) {
        let child = &mut self.members[number].child;
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self, number: usize) {
        let peers: Vec<String> = self.members.iter().map(|member| member.peer.clone()).collect();
        let Member { client, peer, .. } = &self.members[number];
        let child = self.spawn(number, client, peer, &peers);
        self.members[number].child = child;
    }

    /// Waits until a member takes part again: otherwise the next one to fail leaves no majority.
    pub(crate) async fn back(&self, number: usize) {
        let member = Etcd::new([self.endpoints()[number].clone()]).unwrap();
        while member.get("ready").await.is_err() {}
    }

    /// The member stays as it is and answers nothing.
    pub(crate) fn halt(&self, number: usize) {
        self.signal(number, Signal::STOP);
    }

    pub(crate) fn go_on(&self, number: usize) {
        self.signal(number, Signal::CONT);
    }

    fn signal(&self, number: usize, signal: Signal) {
        let pid = i32::try_from(self.members[number].child.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
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

impl Tls {
    fn write(folder: &Path) -> Tls {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Tls { certificate: made.cert }
    }
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
    let own = std::env::var_os("ETCD").map(PathBuf::from);
    let found = own.into_iter().chain(in_path).find(|path| path.is_file());
    if found.is_none() {
        assert!(std::env::var_os("ETCD").is_none(), "ETCD names no file");
        println!("SKIPPED: there is no etcd here; `cargo xtask etcd` gets it");
    }
    found
}

/// How long a call may take. `ETCD_DEADLINE_MS` sets a shorter one, for a machine that is quiet.
pub(crate) fn deadline() -> Duration {
    let ms = std::env::var("ETCD_DEADLINE_MS").ok().map(|ms| ms.parse().expect("ETCD_DEADLINE_MS is a number"));
    ms.map_or(DEADLINE, Duration::from_millis)
}

const DEADLINE: Duration = Duration::from_secs(30);
