//! Changes of the members, in a bounded queue.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::task::{Context, Poll};

use dapple_sync::sync::mpsc;
use futures_core::Stream;

use crate::peer::parse_address;

/// One host has joined or left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Member {
    /// A host at this address.
    Joined(String),
    /// The host is gone.
    Left(String),
}

/// The hosts of a stage, as they join and leave: a stream that starts with all present ones. Made
/// by [`Discovery::members`](super::Discovery::members).
///
/// If a reader is slow, the directory waits, and the reader then gets only the changes that still
/// hold.
#[derive(Debug)]
pub struct Members(mpsc::Receiver<Member>);

impl Members {
    /// Returns the next change. `None` if the runtime has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<Member> {
        self.0.recv().await
    }
}

impl Stream for Members {
    type Item = Member;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Member>> {
        self.0.poll_recv(cx)
    }
}

/// The sending side.
pub(super) struct Publisher {
    tx: mpsc::Sender<Member>,
    told: BTreeSet<String>,
}

pub(super) fn channel() -> (Publisher, Members) {
    let (tx, rx) = mpsc::channel(NEWS_MAX);
    (Publisher { tx, told: BTreeSet::new() }, Members(rx))
}

impl Publisher {
    /// Sets the members. Leaves out invalid addresses, and those beyond [`MEMBERS_MAX`].
    pub(super) async fn set(&mut self, addresses: impl IntoIterator<Item = String>) {
        let new = valid(addresses);
        let gone: Vec<String> = self.told.difference(&new).cloned().collect();
        let come: Vec<String> = new.difference(&self.told).cloned().collect();
        // New members first, so that there are some all the time.
        for address in come {
            let _ = self.tx.send(Member::Joined(address)).await;
        }
        for address in gone {
            let _ = self.tx.send(Member::Left(address)).await;
        }
        self.told = new;
    }

    /// Waits until there is no reader. Cancel safe.
    pub(super) async fn forsaken(&self) {
        self.tx.closed().await;
    }

    pub(super) fn is_forsaken(&self) -> bool {
        self.tx.is_closed()
    }
}

fn valid(addresses: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    let mut valid = BTreeSet::new();
    for address in addresses {
        if let Err(problem) = parse_address(&address) {
            tracing::warn!("a host of a stage is left out: {problem}");
        } else if valid.len() < MEMBERS_MAX {
            valid.insert(address);
        } else {
            tracing::warn!(max = MEMBERS_MAX, "there are more hosts of a stage than can be used; ignoring the others");
            break;
        }
    }
    valid
}

/// The most changes that wait for a reader.
const NEWS_MAX: usize = 64;

/// The most members that are accepted.
const MEMBERS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::{MEMBERS_MAX, Member, channel, valid};

    #[test]
    fn only_changes_are_sent() {
        dapple_sched::block_on(async {
            let (mut publisher, mut members) = channel();
            let owned = |list: &[&str]| list.iter().map(|&address| address.to_owned()).collect::<Vec<_>>();
            publisher.set(owned(&["a:1", "b:1"])).await;
            publisher.set(owned(&["b:1", "a:1"])).await;
            publisher.set(owned(&["b:1", "c:1", "nonsense"])).await;
            drop(publisher);
            let mut news = Vec::new();
            while let Some(member) = members.next().await {
                news.push(member);
            }
            let (joined, left) = (|a: &str| Member::Joined(a.to_owned()), |a: &str| Member::Left(a.to_owned()));
            assert_eq!(news, [joined("a:1"), joined("b:1"), joined("c:1"), left("a:1")]);
        });
    }

    #[test]
    fn a_directory_cannot_name_more_than_the_limit() {
        assert_eq!(valid((0..20_000).map(|number| format!("host{number}:1"))).len(), MEMBERS_MAX);
    }
}
