//! Leases and locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use dapple_etcd::{Error, Event, Put, Reason, Txn, Watching};

use crate::cluster::Cluster;
use crate::run;

const TTL: Duration = Duration::from_secs(60);

#[test]
fn keys_go_with_their_lease() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async move {
        let etcd = cluster.client().await;
        let lease = etcd.lease(TTL).await.unwrap();
        let put = etcd.put(Put::new("leased", "1").lease(lease.id())).await.unwrap();
        assert_eq!(etcd.get("leased").await.unwrap().unwrap().lease, Some(lease.id()));
        assert!(etcd.renew(lease.id()).await.unwrap().is_some_and(|left| left >= Duration::from_secs(2)));
        let mut watch = etcd.watch(Watching::new("leased").since(put.revision + 1)).await.unwrap();
        let id = lease.id();
        drop(lease);
        assert!(matches!(watch.next().await.unwrap()[..], [Event::Delete { .. }]));
        assert_eq!(etcd.renew(id).await.unwrap(), None);
        let put = etcd.put(Put::new("leased", "1").lease(id)).await;
        assert_eq!(put.unwrap_err().reason(), Some(Reason::NoLease));
    });
}

#[test]
fn the_owner_of_a_lease_that_is_over_learns_of_it() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async move {
        let etcd = cluster.client().await;
        let lease = etcd.lease(Duration::from_secs(2)).await.unwrap();
        etcd.revoke(lease.id()).await.unwrap();
        lease.lost().await;
        assert!(lease.is_lost());
        // A second end is none.
        etcd.revoke(lease.id()).await.unwrap();
    });
}

#[test]
fn a_process_that_was_stopped_knows_that_its_lease_may_be_over() {
    let Some(cluster) = Cluster::start(1) else { return };
    let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
    let task = runtime.spawn(async move {
        let lease = cluster.client().await.lease(Duration::from_secs(2)).await.unwrap();
        let was_lost = lease.is_lost();
        cluster.halt(0);
        // The only worker: nothing renews the lease or notices its end.
        std::thread::sleep(Duration::from_secs(4));
        (was_lost, lease.is_lost())
    });
    assert_eq!(runtime.block_on(task).unwrap(), (false, true));
}

#[test]
fn a_lease_that_is_left_stays_for_its_time() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async move {
        let etcd = cluster.client().await;
        let lease = etcd.lease(TTL).await.unwrap();
        let id = lease.id();
        lease.leave();
        etcd.put(Put::new("a", "").lease(id)).await.unwrap();
        assert!(etcd.renew(id).await.unwrap().is_some());
    });
}

#[test]
fn a_lock_has_one_holder_and_growing_tokens() {
    let Some(cluster) = Cluster::start(3) else { return };
    run(async move {
        let etcd = cluster.client().await;
        let (is_held, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
        let contend = |_| {
            let (etcd, is_held, last) = (etcd.clone(), is_held.clone(), last.clone());
            dapple_sched::spawn(async move {
                let lease = etcd.lease(TTL).await.unwrap();
                for _ in 0..5 {
                    let held = etcd.clone().timeout(Duration::from_secs(200)).lock("l", &lease).await.unwrap();
                    assert!(!is_held.swap(true, Ordering::SeqCst), "two have the lock");
                    assert!(last.swap(held.token(), Ordering::SeqCst) < held.token(), "a token came back");
                    let txn = Txn::new().when(held.compare()).then(Put::new("protected", "x"));
                    assert!(etcd.txn(&txn).await.unwrap().succeeded);
                    is_held.store(false, Ordering::SeqCst);
                    held.unlock().await.unwrap();
                }
            })
        };
        for task in (0..4).map(contend).collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_lock_goes_on_when_its_holder_dies_and_a_waiter_can_give_up() {
    let Some(cluster) = Cluster::start(1) else { return };
    run(async move {
        let etcd = cluster.client().await;
        let (one, other) = (etcd.lease(TTL).await.unwrap(), etcd.lease(TTL).await.unwrap());
        let held = etcd.lock("l", &one).await.unwrap();
        let late = etcd.clone().timeout(Duration::from_millis(300)).lock("l", &other).await;
        assert!(matches!(late, Err(Error::Unavailable { .. })), "{late:?}");
        let stale = held.compare();
        let waiting = etcd.lock("l", &other);
        one.revoke().await;
        let next = waiting.await.unwrap();
        assert!(next.token() > held.token());
        // A late write of the former holder under its condition has no effect.
        assert!(!etcd.txn(&Txn::new().when(stale).then(Put::new("p", "late"))).await.unwrap().succeeded);
    });
}
