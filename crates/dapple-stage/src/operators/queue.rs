//! The distributed queue: many producers, many consumers, and no central node.
//!
//! ```text
//!   producer ─ balances ─┬──► [ ][ ] ╮
//!                        ╰─╮         ├─ aggregates ─► consumer
//!                        ╭─┼► [ ]    ╯
//!   producer ─ balances ─╯ ╰► [ ][ ] ─ aggregates ─► consumer
//! ```
//!
//! Aggregation followed by balance is a distributed queue; a separate aggregation node would be its
//! bottleneck. So the queue is *virtual* (Gribble's dissertation, 4.2): each producer balances over
//! the queues of all consumers, and each consumer aggregates the messages of all producers. A
//! message passes one producer and one consumer.
//!
//! | promised | |
//! |---|---|
//! | order | between one producer and one consumer that of the discipline; otherwise none |
//! | a consumer dies | its messages fail, and their producers must send them again; new messages go to the others |
//! | a consumer is slow | its queues fill, and the balance prefers the others |
//! | all queues are full | producers wait in `poll_ready` |
//! | a producer dies | its waiting messages leave the queues |
//!
//! # Example
//!
//! ```
//! use std::convert::Infallible;
//! use dapple_tower::balance::Config;
//! use dapple_stage::operators::aggregate::Discipline;
//! use dapple_stage::operators::queue::{Consumer, Producer};
//! use tower::{ServiceExt, service_fn};
//!
//! let producers = [Producer::new(Config::default()), Producer::new(Config::default())];
//! for name in ["a", "b", "c"] {
//!     let work = service_fn(move |n: u32| std::future::ready(Ok::<_, Infallible>((name, n))));
//!     let (consumer, pump) = Consumer::new(work, Discipline::RoundRobin);
//!     std::thread::spawn(move || dapple_sched::block_on(pump));
//!     // Here both are in one process. Elsewhere, a producer uses a remote stage: its host serves a queue of the consumer.
//!     for producer in &producers {
//!         producer.connect(name, consumer.queue(16));
//!     }
//! }
//! for n in 0..10 {
//!     let (_name, worked) = dapple_sched::block_on(producers[n as usize % 2].service().oneshot(n))?;
//!     assert_eq!(worked, n);
//! }
//! # Ok::<(), dapple_stage::BoxError>(())
//! ```

use std::fmt;
use std::hash::Hash;

use dapple_tower::balance::{Balance, Balancer, Config};
use tower_service::Service;

use super::aggregate::{Aggregate, Discipline, Pump, Source};

/// A consumer that works on the messages of all producers.
pub struct Consumer<M, F> {
    aggregate: Aggregate<M, F>,
}

impl<M, F> Consumer<M, F> {
    /// Lets `service` work on the messages in this order. Spawn the returned [`Pump`].
    pub fn new<S>(service: S, discipline: Discipline) -> (Consumer<M, F>, Pump<M, S>)
    where
        S: Service<M, Future = F>,
    {
        let (aggregate, pump) = Aggregate::new(service, discipline);
        (Consumer { aggregate }, pump)
    }

    /// A queue for one producer, with room for `len_max` messages.
    pub fn queue(&self, len_max: usize) -> Source<M, F> {
        self.aggregate.source(len_max)
    }

    /// A queue for a producer with a priority for [`Discipline::Priority`].
    pub fn queue_with_priority(&self, len_max: usize, priority: u8) -> Source<M, F> {
        self.aggregate.source_with_priority(len_max, priority)
    }

    /// The number of waiting messages.
    pub fn len(&self) -> usize {
        self.aggregate.len()
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.aggregate.is_empty()
    }
}

impl<M, F> Clone for Consumer<M, F> {
    fn clone(&self) -> Consumer<M, F> {
        Consumer { aggregate: self.aggregate.clone() }
    }
}

impl<M, F> fmt::Debug for Consumer<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("len", &self.len()).finish()
    }
}

/// Sends messages to the consumer with the least work. `S` are the consumers' queues, here or
/// elsewhere.
#[derive(Clone)]
pub struct Producer<K, S> {
    balancer: Balancer<K, S>,
}

impl<K: Clone + Eq + Hash, S: Clone> Producer<K, S> {
    /// A producer without consumers.
    pub fn new(config: Config) -> Producer<K, S> {
        Producer { balancer: Balancer::new(config) }
    }

    /// Adds a consumer, and returns the queue that it replaces.
    pub fn connect(&self, name: K, queue: S) -> Option<S> {
        self.balancer.insert(name, queue)
    }

    /// Removes a consumer. Its messages are still sent.
    pub fn disconnect(&self, name: &K) -> Option<S> {
        self.balancer.remove(name)
    }

    /// The service that takes the messages.
    pub fn service(&self) -> Balance<K, S> {
        Balance::new(self.balancer.clone())
    }

    /// The consumers as this producer knows them, for reading, and for discovery to change.
    pub fn balancer(&self) -> &Balancer<K, S> {
        &self.balancer
    }
}

impl<K: Clone + Eq + Hash + fmt::Debug, S: Clone> fmt::Debug for Producer<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("balancer", &self.balancer).finish()
    }
}
