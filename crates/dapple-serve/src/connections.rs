//! All connections of a server: counted, told to end, and the idle ones found.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_io::time::Instant;
use dapple_sync::sync::Notify;
use slab::Slab;

use crate::connection::{Link, Order};

/// The connections that are open, upgraded ones included.
#[derive(Debug)]
pub(crate) struct Connections {
    max: AtomicUsize,
    open: Mutex<Slab<Arc<Link>>>,
    /// One has ended.
    ended: Notify,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Connections>,
    key: usize,
}

impl Connections {
    pub(crate) fn new(max: usize) -> Connections {
        Connections { max: AtomicUsize::new(max), open: Mutex::default(), ended: Notify::new() }
    }

    pub(crate) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// How many there are.
    pub(crate) fn open(&self) -> usize {
        self.lock().len()
    }

    /// One more, or `None` where there are as many as there may be.
    pub(crate) fn enter(self: &Arc<Self>, link: &Arc<Link>) -> Option<Place> {
        let mut open = self.lock();
        if open.len() >= self.max() {
            return None;
        }
        let key = open.insert(link.clone());
        Some(Place { connections: self.clone(), key })
    }

    /// Has some of those end that rest: those of the client that has most connections, and of these who rest longest. Some at a time, as
    /// it takes a look at all.
    pub(crate) fn make_room(&self, now: Instant) {
        let mut counts: HashMap<Option<IpAddr>, usize> = HashMap::new();
        let mut resting: Vec<(Arc<Link>, Instant)> = Vec::new();
        for (_, link) in self.lock().iter() {
            *counts.entry(link.peer().network()).or_default() += 1;
            resting.extend(link.rests_since(now).map(|since| (link.clone(), since)));
        }
        let count = (self.max() / EVICTED_PART).clamp(1, EVICTED_MAX).min(resting.len());
        if count == 0 {
            return;
        }
        resting.select_nth_unstable_by_key(count - 1, |(link, since)| {
            (Reverse(counts.get(&link.peer().network()).copied()), *since)
        });
        for (link, _) in &resting[..count] {
            link.order(Order::EndIfResting);
        }
    }

    /// Tells all of them.
    pub(crate) fn order(&self, order: Order) {
        let all: Vec<Arc<Link>> = self.lock().iter().map(|(_, link)| link.clone()).collect();
        for link in all {
            link.order(order);
        }
    }

    /// Waits until one ends after this was first polled. Cancel safe.
    pub(crate) async fn one_ended(&self) {
        self.ended.notified().await;
    }

    /// Waits until none is left. Cancel safe.
    pub(crate) async fn all_ended(&self) {
        loop {
            let ended = self.ended.notified();
            if self.open() == 0 {
                return;
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slab<Arc<Link>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let link = self.connections.lock().try_remove(self.key);
        drop(link);
        self.connections.ended.notify_one();
    }
}

/// Which part of all connections is told to end at once where there is no room, and how many at most.
const EVICTED_PART: usize = 100;
const EVICTED_MAX: usize = 64;
