use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple::task::First;
use dapple::time::{Instant, sleep};

use super::{ClientId, Leases, Recall};
use crate::tree::NodeId;

const FILE: NodeId = NodeId { device: 1, inode: 2 };
const LONG: Duration = Duration::from_secs(3600);

fn run(test: impl Future<Output = ()>) {
    dapple::builder().workers(1).build().expect("a runtime").block_on(test);
}

/// The changes of the file that run, and those that wait for their turn.
async fn changes(leases: &Leases) -> (usize, usize) {
    leases.node(FILE).state.with(|state| (state.running, state.turns.len())).await
}

async fn until_changes_are(leases: &Leases, expected: (usize, usize)) {
    while changes(leases).await != expected {
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_read_waits_for_the_writes_that_another_client_keeps() {
    run(async {
        let leases = Leases::new(LONG);
        let [writer, reader] = [1, 2].map(|id| leases.client(ClientId(id)).expect("a client"));
        let lease = leases.grant_writes(&writer, FILE).await.expect("a lease");
        assert!(lease.writes && leases.has_delegation(writer.id(), FILE, lease.grant).await);
        assert!(leases.grant(&reader, FILE).await.is_none(), "the wish for a lease takes nothing back");
        assert!(!leases.settle(&[FILE], Some(writer.id())).await, "its own reads wait for nothing");
        let reading = dapple::spawn({
            let (leases, by) = (leases.clone(), Some(reader.id()));
            async move { leases.settle(&[FILE], by).await }
        });
        assert!(matches!(writer.recalls(LONG).await[..], [Recall::Node(FILE, _)]));
        assert!(leases.grant_writes(&writer, FILE).await.is_none(), "no new lease while the reader waits");
        leases.release(&writer, &[(FILE, lease.grant)]).await;
        assert!(reading.await.expect("it ends"), "it reads again what it had read");
        assert!(!leases.has_delegation(writer.id(), FILE, lease.grant).await && !leases.has_delegations());
        assert!(!leases.grant(&reader, FILE).await.expect("a lease").writes);
        assert!(!leases.grant_writes(&writer, FILE).await.expect("a lease").writes, "it is not alone");
    });
}

#[test]
fn a_client_that_does_not_answer_loses_its_delegation() {
    run(async {
        let leases = Leases::new(Duration::from_millis(20));
        let [writer, reader] = [1, 2].map(|id| leases.client(ClientId(id)).expect("a client"));
        let first = leases.grant_writes(&writer, FILE).await.expect("a lease");
        assert!(leases.settle(&[FILE], Some(reader.id())).await);
        assert!(!leases.has_delegation(writer.id(), FILE, first.grant).await);
        let second = leases.grant_writes(&writer, FILE).await.expect("a lease");
        assert!(second.writes && !leases.has_delegation(writer.id(), FILE, first.grant).await, "the first one is over");
        assert!(leases.is_of_earlier_service(0) && !leases.is_of_earlier_service(first.grant));
    });
}

#[test]
fn a_change_that_must_be_alone_waits_for_others_and_they_for_it() {
    run(async {
        let leases = Leases::new(LONG);
        let [first, second] = [leases.change(None, &[FILE]).await, leases.change(None, &[FILE]).await];
        let begun = Arc::new(AtomicUsize::new(0));
        let start = |alone: bool| {
            let (leases, begun) = (leases.clone(), begun.clone());
            dapple::spawn(async move {
                let change = match alone {
                    true => leases.change_alone(None, &[FILE]).await,
                    false => leases.change(None, &[FILE]).await,
                };
                begun.fetch_add(1, Ordering::SeqCst);
                change
            })
        };
        let client = leases.client(ClientId(1)).expect("a client");
        let alone = start(true);
        until_changes_are(&leases, (2, 1)).await;
        drop(first);
        assert!(leases.grant(&client, FILE).await.is_none());
        assert_eq!(changes(&leases).await, (1, 1), "the second one still runs");
        drop(second);
        let alone = alone.await.expect("its turn");
        let waiting = [true, false].map(|alone| {
            let change = start(alone);
            dapple::spawn(async move { drop(change.await) })
        });
        until_changes_are(&leases, (1, 2)).await;
        assert!(leases.grant(&client, FILE).await.is_none());
        assert_eq!(begun.load(Ordering::SeqCst), 1);
        drop(alone);
        for waiting in waiting {
            waiting.await.expect("its turn");
        }
        assert!(leases.grant(&client, FILE).await.is_some(), "no change is left");
    });
}

#[test]
fn a_change_that_is_given_up_while_it_waits_leaves_nothing() {
    run(async {
        let leases = Leases::new(LONG);
        let client = leases.client(ClientId(1)).expect("a client");
        let lease = leases.grant(&client, FILE).await.expect("a lease");
        for alone in [false, true] {
            let change = async {
                match alone {
                    true => drop(leases.change_alone(None, &[FILE]).await),
                    false => drop(leases.change(None, &[FILE]).await),
                }
            };
            let recalled = async {
                client.recalls(LONG).await;
            };
            dapple::task::race(change, recalled).await;
        }
        leases.release(&client, &[(FILE, lease.grant)]).await;
        assert!(leases.grant(&client, FILE).await.is_some());
    });
}

#[test]
fn writes_that_were_kept_are_refused_if_the_delegation_ends_while_they_wait() {
    run(async {
        let leases = Leases::new(Duration::from_millis(20));
        let [writer, reader] = [1, 2].map(|id| leases.client(ClientId(id)).expect("a client"));
        let lease = leases.grant_writes(&writer, FILE).await.expect("a lease");
        let other = leases.change_alone(Some(writer.id()), &[FILE]).await;
        let late = dapple::spawn({
            let (leases, by) = (leases.clone(), writer.id());
            async move { leases.change_delegated(by, FILE, lease.grant).await.is_some() }
        });
        until_changes_are(&leases, (1, 1)).await;
        // The lease of the writer has run out, so the reader waits only for writes of it that run.
        let reading = dapple::spawn({
            let (leases, by) = (leases.clone(), Some(reader.id()));
            async move { leases.settle(&[FILE], by).await }
        });
        while leases.has_delegation(writer.id(), FILE, lease.grant).await {
            sleep(Duration::from_millis(1)).await;
        }
        drop(other);
        assert!(!late.await.expect("it ends"), "another client may have read the file");
        assert!(reading.await.expect("it ends"));
    });
}

#[test]
fn a_delegation_lasts_until_another_client_comes_or_its_own_has_gone() {
    run(async {
        let leases = Leases::new(LONG);
        let client = leases.client(ClientId(1)).expect("a client");
        let lease = leases.grant_writes(&client, FILE).await.expect("a lease");
        let later = Instant::now() + 2 * LONG;
        leases.sweep(later, 4 * LONG);
        assert!(leases.has_delegation(client.id(), FILE, lease.grant).await, "only the lease has run out");
        leases.sweep(later, LONG);
        assert!(!leases.has_delegation(client.id(), FILE, lease.grant).await);
        assert_eq!(leases.counts().nodes, 0);
        // The state goes in its own color.
        while leases.has_delegations() {
            sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn writes_that_were_kept_for_too_long_are_refused_before_another_client_is_asked() {
    run(async {
        let leases = Leases::new(LONG);
        let [writer, silent] = [1, 2].map(|id| leases.client(ClientId(id)).expect("a client"));
        assert!(leases.grant(&silent, FILE).await.is_some());
        let is_refused = async { leases.change_delegated(writer.id(), FILE, u64::MAX).await.is_none() };
        let is_recalled = async { silent.recalls(LONG).await.is_empty() };
        assert_eq!(dapple::task::race(is_refused, is_recalled).await, First::Left(true));
        assert_eq!(leases.counts().recalled, 0);
    });
}
