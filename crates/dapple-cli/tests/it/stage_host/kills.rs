//! Hosts that die under load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dapple::stage::middleware::retry::{Attempts, Retry};
use dapple::stage::remote::{ByFate, Discovery, Fate};

use super::{StageHost, send, until};

/// The outcomes of all senders' requests.
#[derive(Default)]
struct Tally {
    replies: AtomicU64,
    unknown: AtomicU64,
    others: std::sync::Mutex<BTreeMap<String, u64>>,
}

impl Tally {
    fn replies(&self) -> u64 {
        self.replies.load(Ordering::SeqCst)
    }
}

#[test]
fn of_three_hosts_one_is_killed_and_comes_back_and_every_request_has_an_end() {
    let mut hosts: Vec<StageHost> = (0..3).map(|_| StageHost::start(&[])).collect();
    let addresses: Vec<String> = hosts.iter().map(|host| host.address.clone()).collect();
    let runtime = dapple::builder().workers(2).build().unwrap();
    runtime.block_on(async {
        let balance = Discovery::list(addresses.clone()).unwrap().balance::<u64, u64>("spin");
        let balancer = balance.balancer().clone();
        until("all three are found", || balancer.serving_len() == 3).await;
        let (tally, stop) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
        let senders: Vec<_> = (0..12)
            .map(|_| {
                let mut spin = Retry::new(Attempts::new(10).judge(ByFate), balance.clone());
                let (tally, stop) = (tally.clone(), stop.clone());
                dapple::spawn(async move {
                    while !stop.load(Ordering::SeqCst) {
                        match send(&mut spin, 500).await {
                            Ok(_) => drop(tally.replies.fetch_add(1, Ordering::SeqCst)),
                            Err(error) if Fate::of(&error) == Fate::Unknown => {
                                tally.unknown.fetch_add(1, Ordering::SeqCst);
                            }
                            Err(error) => *tally.others.lock().unwrap().entry(error.to_string()).or_insert(0) += 1,
                        }
                    }
                })
            })
            .collect();
        let served = |address: &str| {
            balancer.stats().into_iter().find(|replica| replica.key == address).map_or(0, |replica| replica.successes)
        };
        for round in 0..3 {
            let victim = round % 3;
            let before = tally.replies();
            until("requests flow", || tally.replies() > before + 100).await;
            hosts[victim].child.kill().unwrap();
            hosts[victim].child.wait().unwrap();
            let killed = tally.replies();
            until("the others take over", || tally.replies() > killed + 200 && balancer.serving_len() == 2).await;
            let had = served(&addresses[victim]);
            hosts[victim] = StageHost::start_at(&addresses[victim], &[]);
            until("it rejoins, and gets requests", || served(&addresses[victim]) > had + 20).await;
        }
        stop.store(true, Ordering::SeqCst);
        for sender in senders {
            sender.await.expect("every request has ended");
        }
        // Requests of the killed hosts, at most as many as were in transit.
        let unknown = tally.unknown.load(Ordering::SeqCst);
        assert!(unknown <= 3 * 12, "{unknown}");
        let others = tally.others.lock().unwrap();
        assert!(others.is_empty(), "{others:?}");
    });
}
