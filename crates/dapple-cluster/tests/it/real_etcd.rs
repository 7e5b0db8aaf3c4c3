//! Deciders that die after each of their writes, and one that does not know that it has lost its lock.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dapple_cluster::record::{HostReport, Service};
use dapple_cluster::{Decider, Directory, EVENTS_MAX, Place, Round};
use dapple_etcd::{Etcd, Put};
use dapple_io::time::{sleep, timeout};
use tempfile::TempDir;

/// An etcd for one test; killed when dropped.
struct Server {
    child: Child,
    client: String,
    _folder: TempDir,
}

impl Server {
    fn start() -> Option<Server> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let in_path = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
        let own = std::env::var_os("ETCD").map(PathBuf::from);
        let Some(program) = own.into_iter().chain(in_path).find(|path| path.is_file()) else {
            assert!(std::env::var_os("ETCD").is_none(), "ETCD names no file");
            println!("SKIPPED: there is no etcd here; `cargo xtask etcd` gets it");
            return None;
        };
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [client, peer] = free.each_ref().map(|free| free.local_addr().unwrap().to_string());
        drop(free);
        let folder = tempfile::tempdir().unwrap();
        let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(folder.path().join("etcd")).args(["--log-level", "error"]);
        command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
        command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
        command.args(["--initial-cluster", &format!("default={peer_url}")]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Some(Server { child, client, _folder: folder })
    }

    /// The records, once etcd takes writes.
    async fn directory(&self) -> Directory {
        let place: Place = format!("etcd://{}/test", self.client).parse().unwrap();
        let etcd = Etcd::new([self.client.clone()]).unwrap().timeout(Duration::from_secs(30));
        while etcd.put(Put::new("ready", "")).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
        for name in ["a", "b"] {
            let memory_mb = 1 << 20;
            let host = HostReport {
                name: name.into(),
                cores: 1e4,
                memory_mb,
                memory_free_mb: memory_mb,
                ..HostReport::default()
            };
            etcd.put(Put::new(format!("/test/hosts/{name}"), serde_json::to_vec(&host).unwrap())).await.unwrap();
        }
        Directory::with_client(place, etcd)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(test: impl Future<Output = ()> + Send + 'static) {
    let runtime = dapple_io::runtime_builder().workers(2).build().unwrap();
    let limited = async move { timeout(Duration::from_secs(300), test).await.expect("it is done within the limit") };
    runtime.block_on(runtime.spawn(limited)).unwrap_or_else(|error| panic!("{error:?}"));
}

fn echo(min: u32) -> Service {
    Service { min, ..Service::new("echo", ["program"]) }
}

#[test]
fn a_decider_dies_after_each_write_and_the_next_ones_end_what_it_began() {
    let Some(server) = Server::start() else { return };
    run(async move {
        let directory = server.directory().await;
        directory.apply(&[echo(4)]).await.unwrap();
        let mut written = 0;
        for number in 0..10 {
            let decider = Decider::new(directory.clone(), &format!("d{number}"), Duration::from_secs(2));
            let mut term = decider.term().await.unwrap();
            let round = term.round(1).await.unwrap();
            // The lock stays until its lease is over.
            term.die().await;
            if round == Round::Done(0) {
                break;
            }
            written += 1;
        }
        assert_eq!(written, 4);
        let status = directory.status().await.unwrap();
        assert_eq!(status.view.assigned.len(), 4, "each is placed once");
        let events = directory.events().await.unwrap();
        let told: Vec<_> = events.iter().map(|event| (event.number, event.decider.as_str())).collect();
        assert_eq!(told, [(1, "d0"), (2, "d1"), (3, "d2"), (4, "d3")]);
        assert!(events.iter().all(|event| event.reason.contains("echo has")), "{events:?}");
    });
}

#[test]
fn a_host_that_was_frozen_and_believes_that_it_decides_writes_nothing() {
    let Some(server) = Server::start() else { return };
    run(async move {
        let directory = server.directory().await;
        let mut first = Decider::new(directory.clone(), "first", Duration::from_secs(60)).term().await.unwrap();
        assert_eq!(first.round(usize::MAX).await.unwrap(), Round::Done(0));
        first.outlive_lease().await.unwrap();
        let mut second = Decider::new(directory.clone(), "second", Duration::from_secs(60)).term().await.unwrap();
        directory.apply(&[echo(2)]).await.unwrap();
        assert_eq!(first.round(usize::MAX).await.unwrap(), Round::Fenced);
        assert!(directory.status().await.unwrap().view.assigned.is_empty());
        assert_eq!(second.round(usize::MAX).await.unwrap(), Round::Done(2));
        let status = directory.status().await.unwrap();
        assert_eq!((status.decider.as_deref(), status.view.assigned.len()), (Some("second"), 2));
    });
}

#[test]
fn events_are_a_bounded_list_also_over_deciders() {
    let Some(server) = Server::start() else { return };
    run(async move {
        let directory = server.directory().await;
        let half = u32::try_from(EVENTS_MAX / 2 + 10).unwrap();
        for (number, wanted) in [half, 0].into_iter().enumerate() {
            directory.apply(&[echo(wanted)]).await.unwrap();
            let decider = Decider::new(directory.clone(), &number.to_string(), Duration::from_secs(60));
            let mut term = decider.term().await.unwrap();
            assert_eq!(term.round(usize::MAX).await.unwrap(), Round::Done(half as usize));
        }
        let events = directory.events().await.unwrap();
        let last = u64::from(half) * 2;
        let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
        assert_eq!(numbers, (last - EVENTS_MAX + 1..=last).collect::<Vec<_>>());
    });
}

#[test]
fn changes_by_people_are_checked_and_do_not_undo_each_other() {
    let Some(server) = Server::start() else { return };
    run(async move {
        let directory = server.directory().await;
        assert!(directory.scale("echo", 1, 2).await.unwrap_err().to_string().contains("no service \"echo\""));
        assert!(directory.remove("echo").await.is_err());
        directory.apply(&[echo(1)]).await.unwrap();
        let wrong = Service { cores: -1.0, ..echo(1) };
        assert!(directory.apply(&[wrong]).await.unwrap_err().to_string().contains("cores"));
        let rolls = [(); 5].map(|()| {
            let directory = directory.clone();
            dapple_sched::spawn(async move { directory.roll("echo", None).await })
        });
        for roll in rolls {
            roll.await.unwrap().unwrap();
        }
        directory.scale("echo", 2, 5).await.unwrap();
        // The file of before the rolls does not take them back.
        directory.apply(&[echo(3)]).await.unwrap();
        let services = directory.status().await.unwrap().view.services;
        assert_eq!((services["echo"].epoch, services["echo"].min), (5, 3));
        directory.remove("echo").await.unwrap();
        assert!(directory.status().await.unwrap().view.services.is_empty());
    });
}

#[test]
fn records_that_make_no_sense_have_no_effect() {
    let Some(server) = Server::start() else { return };
    run(async move {
        let directory = server.directory().await;
        let etcd = Etcd::new([server.client.clone()]).unwrap();
        for (key, value) in [
            ("services/evil", r#"{"name":"../../etc","command":["x"]}"#),
            ("services/none", r#"{"name":"none","command":[]}"#),
            ("services/text", "x"),
            ("hosts/ghost", r#"{"cores":"many"}"#),
            ("assigned/a/junk", "[]"),
            ("changed/echo", "-5"),
            ("shortages", "{}"),
            ("events/007", "7"),
        ] {
            etcd.put(Put::new(format!("/test/{key}"), value)).await.unwrap();
        }
        directory.apply(&[echo(2)]).await.unwrap();
        let mut term = Decider::new(directory.clone(), "a", Duration::from_secs(60)).term().await.unwrap();
        assert_eq!(term.round(usize::MAX).await.unwrap(), Round::Done(2));
        let view = directory.status().await.unwrap().view;
        assert_eq!(view.services.keys().collect::<Vec<_>>(), ["echo"]);
        assert_eq!(view.unreadable.iter().collect::<Vec<_>>(), ["evil", "none", "text"]);
        assert_eq!(view.hosts.keys().collect::<Vec<_>>(), ["a", "b"]);
    });
}
