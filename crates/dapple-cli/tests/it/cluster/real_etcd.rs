//! Hosts that die, freeze, return and leave, and versions that roll, with a real etcd.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dapple::stage::remote::{Discovery, Fate, Peer, RemoteStage};
use rustix::process::Signal;

use super::namespaces::Network;
use super::{Cluster, dapple, echo, is_running};
use crate::stage_host::send;

#[test]
fn replicas_leave_hosts_that_die_freeze_and_end_and_those_that_return_have_none_left_over() {
    let Some(cluster) = Cluster::start() else { return };
    let [mut a, mut b, c] = ["a", "b", "c"].map(|name| cluster.host(name, &["--ttl-s", "3"]));
    cluster.apply(&echo("min = 3"));
    cluster.until("three are ready", || cluster.ready(3).is_some());

    b.kill();
    let left_over = b.noted();
    cluster.until("none is left on b", || {
        !cluster.hosts().contains(&"b".to_owned())
            && cluster.ready(3).is_some_and(|hosts| !hosts.contains(&"b".to_owned()))
    });

    a.signal(Signal::STOP);
    cluster.until("all are on c", || cluster.ready(3).is_some_and(|hosts| hosts == ["c"; 3]));
    let of_a = a.noted();
    a.signal(Signal::CONT);
    cluster.until("a is back", || cluster.hosts().contains(&"a".to_owned()));
    // Those that were placed elsewhere meanwhile end here.
    cluster.until("its old replicas end", || !of_a.iter().any(|pid| is_running(*pid)));

    let again = cluster.host("b", &["--ttl-s", "3"]);
    assert!(
        !left_over.is_empty() && !left_over.iter().any(|pid| is_running(*pid)),
        "an earlier start's replicas end first"
    );
    cluster.until("b is back", || cluster.hosts().contains(&"b".to_owned()));

    // One that ends in order gives its replicas away first.
    c.signal(Signal::TERM);
    let mut c = c;
    assert!(c.child.wait().expect("it ends").success());
    cluster.until("c is gone", || !cluster.hosts().contains(&"c".to_owned()));
    cluster
        .until("three are ready elsewhere", || cluster.ready(3).is_some_and(|hosts| !hosts.contains(&"c".to_owned())));
    a.kill();
    drop(again);
}

#[test]
fn machines_that_are_cut_off_keep_their_replicas_until_they_are_back() {
    let Some(network) = Network::make(&["a", "b", "c"]) else { return };
    let Some(cluster) = Cluster::start_at(&network.gateway()) else { return };
    let host = |name: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &network.space(name), dapple()]);
        cluster.host_by(command, name, &["--ttl-s", "3", "--address", &network.address(name)])
    };
    let [a, _b, _c] = ["a", "b", "c"].map(host);
    cluster.apply(&echo("min = 3\nhealth = \"/health\""));
    cluster.until("each machine has one", || cluster.ready(3).is_some_and(|hosts| hosts == ["a", "b", "c"]));
    let of_a = a.noted();
    network.cut("a", true);
    cluster.until("its replica is elsewhere", || {
        cluster.ready(3).is_some_and(|hosts| !hosts.contains(&"a".to_owned()))
            && !cluster.hosts().contains(&"a".to_owned())
    });
    assert!(of_a.iter().all(|pid| is_running(*pid)), "an outage ends no replica");
    network.cut("a", false);
    cluster.until("a is back", || cluster.hosts().contains(&"a".to_owned()));
    cluster.until("its old replica ends", || !of_a.iter().any(|pid| is_running(*pid)));
    // After half a minute without changes it gets its part again.
    cluster.until("each machine has one again", || cluster.ready(3).is_some_and(|hosts| hosts == ["a", "b", "c"]));
    // All at once: nothing can be decided, and all come back.
    ["a", "b", "c"].iter().for_each(|name| network.cut(name, true));
    cluster.until("none is heard of", || cluster.hosts().is_empty());
    ["a", "b", "c"].iter().for_each(|name| network.cut(name, false));
    cluster.until("three are ready", || cluster.ready(3).is_some());
}

#[test]
fn half_of_the_hosts_go_at_once_with_the_one_that_decides() {
    let Some(cluster) = Cluster::start() else { return };
    let mut hosts: Vec<_> = ["a", "b", "c", "d"].map(|name| (name, cluster.host(name, &["--ttl-s", "3"]))).into();
    cluster.apply(&echo("min = 8"));
    cluster.until("eight are ready", || cluster.ready(8).is_some());
    let decider = cluster.run(&["status"])["decider"].as_str().unwrap_or("a").to_owned();
    // The one that decides, and another one.
    hosts.sort_by_key(|(name, _)| *name != decider);
    for (_, host) in &mut hosts[..2] {
        host.kill();
    }
    let left: Vec<&str> = hosts[2..].iter().map(|(name, _)| *name).collect();
    cluster.until("eight are ready on the others", || {
        cluster.ready(8).is_some_and(|hosts| hosts.iter().all(|host| left.contains(&host.as_str())))
    });
    let reasons = cluster.run(&["events", "--last", "500"]).to_string();
    assert!(reasons.contains(&format!("the host {decider} is gone: its lease has ended")), "{reasons}");
}

#[test]
fn versions_roll_and_hosts_drain_under_load_and_no_request_is_lost() {
    let Some(cluster) = Cluster::start() else { return };
    let _hosts = ["a", "b"].map(|name| cluster.host(name, &[]));
    cluster.apply(&echo("min = 4\nhealth = \"/health\""));
    cluster.until("four are ready", || cluster.ready(4).is_some());
    let runtime = dapple::builder().workers(2).build().unwrap();
    let found: Discovery = format!("{}/found", cluster.place()).parse().unwrap();
    let (replies, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let senders: Vec<_> = runtime.block_on(async {
        let balance = found.balance::<String, String>("echo");
        let sender = |_| {
            let (mut echo, replies, stop) = (balance.clone(), replies.clone(), stop.clone());
            dapple::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let text = replies.load(Ordering::SeqCst).to_string();
                    // Only what has surely not run is sent again.
                    loop {
                        match send(&mut echo, text.clone()).await {
                            Ok(reply) => break assert_eq!(reply, text),
                            Err(error) if Fate::of(&error) == Fate::NotRun => {
                                dapple::time::sleep(std::time::Duration::from_millis(5)).await;
                            }
                            Err(error) => panic!("a request was lost: {error}"),
                        }
                    }
                    replies.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        (0..6).map(sender).collect()
    });
    let flows = |what: &str| {
        let before = replies.load(Ordering::SeqCst);
        cluster.until(what, || {
            replies.load(Ordering::SeqCst) > before + 200 || senders.iter().any(dapple::JoinHandle::is_finished)
        });
    };
    flows("requests flow at first");
    cluster.run(&["roll", "echo", "--to", "2"]);
    cluster.until("all are of version 2", || cluster.ready(4).is_some());
    flows("requests flow after the roll");
    cluster.run(&["drain", "a"]);
    cluster.until("a is empty", || cluster.ready(4).is_some_and(|hosts| hosts == ["b"; 4]));
    flows("requests flow after the drain");
    cluster.run(&["drain", "a", "--undo"]);
    cluster.run(&["roll", "echo"]);
    cluster.until("all are new again", || cluster.ready(4).is_some());
    flows("requests flow at last");
    stop.store(true, Ordering::SeqCst);
    runtime.block_on(async {
        for sender in senders {
            sender.await.expect("no request was lost");
        }
    });
    let versions = cluster.run(&["status"])["replicas"].to_string();
    assert!(versions.contains(r#""version":"2""#) && !versions.contains(r#""version":"1""#), "{versions}");
}

#[test]
fn a_new_version_takes_the_socket_of_the_old_one_over() {
    let Some(cluster) = Cluster::start() else { return };
    let free = std::net::TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    let _host = cluster.host("a", &["--address", "127.0.0.2"]);
    let text = echo(&format!("port = {}\ntake_over = true", free.port()))
        .replace("\"--workers\"", "\"--take-over\", \"--workers\"");
    cluster.apply(&text);
    cluster.until("it is ready", || cluster.ready(1).is_some());
    let runtime = dapple::builder().workers(1).build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let ended = stop.clone();
    let sender = runtime.spawn(async move {
        let mut echo: RemoteStage<String, String> = Peer::new(free.to_string()).unwrap().stage("echo");
        let mut count = 0;
        while !ended.load(Ordering::SeqCst) {
            assert_eq!(
                echo.send("x".to_owned()).await.unwrap_or_else(|error| panic!("a request was lost: {error}")),
                "x"
            );
            count += 1;
        }
        count
    });
    for version in ["2", "3"] {
        cluster.run(&["roll", "echo", "--to", version]);
        cluster.until("the new version serves alone", || cluster.ready(1).is_some());
    }
    stop.store(true, Ordering::SeqCst);
    assert!(runtime.block_on(sender).expect("no request was lost") > 0);
}

#[test]
fn replicas_that_end_or_are_too_large_start_again_and_say_why() {
    let Some(cluster) = Cluster::start() else { return };
    let _host = cluster.host("a", &[]);
    let ends = "[[service]]\nname = \"ends\"\ncommand = [\"sh\", \"-c\", \"exit 7\"]\ncores = 0.1\n";
    let missing = "[[service]]\nname = \"missing\"\ncommand = [\"/no/such/program\"]\ncores = 0.1\n";
    let large = echo("memory_mb = 1").replace("\"echo\"\ncommand", "\"large\"\ncommand");
    cluster.apply(&format!("{ends}{missing}{large}"));
    let failure = |name: &str| {
        let status = cluster.run(&["status"]);
        let replicas = status["replicas"].as_array().expect("a list");
        let one = replicas.iter().find(|one| one["service"] == name && one["restarts"].as_u64() > Some(0))?;
        Some(one["failure"].as_str().expect("text").to_owned())
    };
    for (name, words) in [("ends", "exit status: 7"), ("missing", "")] {
        cluster.until(name, || failure(name).is_some_and(|failure| failure.contains(words)));
    }
    // The kernel ends it, or the host does.
    cluster.until("large", || failure("large").is_some());
    cluster.until("the lack is told", || {
        cluster.run(&["status"])["shortages"].to_string().contains("times in a row on a")
    });
    cluster.run(&["remove", "ends"]);
    cluster.until("it is gone", || !cluster.run(&["status"]).to_string().contains("exit status: 7"));
}

#[test]
fn the_page_shows_the_cluster_to_those_with_the_token() {
    let Some(cluster) = Cluster::start() else { return };
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _host = cluster.host("a", &["--page", &free.to_string(), "--page-token", "a secret"]);
    let get_with = |path: &str, field: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-w", "\n%{http_code}", "-H", field, &format!("http://{free}{path}")]);
        String::from_utf8(curl.output().expect("curl runs").stdout).expect("text")
    };
    let get = |path: &str| get_with(path, "a: b");
    assert!(get("/").ends_with("401"));
    assert!(get("/-/healthy").ends_with("200"));
    assert!(get("/?token=a%20secret").contains("<h2>Replicas</h2>"));
    cluster.until("it decides", || get("/status.json?token=a%20secret").contains(r#""decider":"a""#));
    assert!(get("/events.json?token=a%20secret").ends_with("200"));
    assert!(get("/none?token=a%20secret").ends_with("404"));
    // The name of the scheme is in any case (RFC 9110, section 11.1).
    for (field, status) in [("bearer a secret", "200"), ("Bearer a secret", "200"), ("Bearer a secre", "401")] {
        assert!(get_with("/status.json", &format!("Authorization: {field}")).ends_with(status), "{field}");
    }
}
