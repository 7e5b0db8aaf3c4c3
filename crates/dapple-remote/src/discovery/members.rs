//! News of who joins and leaves, in a bounded queue.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::task::{Context, Poll};

use dapple_sync::sync::mpsc;
use futures_core::Stream;

use crate::peer::parse_address;

/// One host has joined or left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Member {
    /// There is a host at this address.
    Joined(String),
    /// There is none any more.
    Left(String),
}

/// The hosts of a stage, as they join and leave: a stream that first tells of all who are there. Made by
/// [`Discovery::members`](super::Discovery::members).
///
/// Who reads slowly makes the directory wait, and is told only of what still holds then.
#[derive(Debug)]
pub struct Members(mpsc::Receiver<Member>);

impl Members {
    /// The next news. `None` where the runtime has ended. Cancel safe.
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

/// The side that knows.
pub(super) struct Publisher {
    tx: mpsc::Sender<Member>,
    told: BTreeSet<String>,
}

pub(super) fn channel() -> (Publisher, Members) {
    let (tx, rx) = mpsc::channel(NEWS_MAX);
    (Publisher { tx, told: BTreeSet::new() }, Members(rx))
}

impl Publisher {
    /// Makes these the members. What is no address is left out, as are those beyond [`MEMBERS_MAX`].
    pub(super) async fn set(&mut self, addresses: impl IntoIterator<Item = String>) {
        let new = valid(addresses);
        let gone: Vec<String> = self.told.difference(&new).cloned().collect();
        let come: Vec<String> = new.difference(&self.told).cloned().collect();
        // Those who come first: there are some all the time.
        for address in come {
            let _ = self.tx.send(Member::Joined(address)).await;
        }
        for address in gone {
            let _ = self.tx.send(Member::Left(address)).await;
        }
        self.told = new;
    }

    /// Waits until nobody wants to know any more. Cancel safe.
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
            tracing::warn!(
                max = MEMBERS_MAX,
                "there are more hosts of a stage than can be used; the others are left out"
            );
            break;
        }
    }
    valid
}

/// News that wait for a reader.
const NEWS_MAX: usize = 64;

/// More are not believed.
const MEMBERS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::{MEMBERS_MAX, Member, channel, valid};

    #[test]
    fn only_what_changes_is_news() {
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
