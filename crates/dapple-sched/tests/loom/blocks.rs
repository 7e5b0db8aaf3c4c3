//! The memory of tasks alone: workers take blocks, and others give them back. A slab has two
//! blocks, and a worker keeps two.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use dapple_sched::model::Blocks;
use loom::thread;

use crate::support::check;

/// Blocks, and whether they are gone.
fn blocks() -> (Arc<Blocks>, Arc<AtomicBool>) {
    let gone = Arc::new(AtomicBool::new(false));
    (Arc::new(Blocks::new(gone.clone())), gone)
}

// A worker takes blocks that another one frees. The worker that frees them thus has more than it
// keeps, and takes some itself meanwhile.
//
// Caught: a chain that a worker both frees and keeps (handed out twice); a slab that is not linked
// when one of its blocks comes back (one slab too many).
#[test]
fn blocks_come_back_to_another_worker() {
    check(4, || {
        let (blocks, gone) = blocks();
        let keeper = blocks.keeper();
        let taken = [1, 2, 3].map(|value| keeper.take(value));
        let other = thread::spawn({
            let blocks = blocks.clone();
            move || {
                let keeper = blocks.keeper();
                for (value, block) in (1..).zip(taken) {
                    assert_eq!(block.value(), value);
                    keeper.give(block);
                }
                let block = keeper.take(4);
                assert_eq!(block.value(), 4);
                keeper.give(block);
            }
        });
        let block = keeper.take(5);
        let more = keeper.take(6);
        keeper.give(block);
        assert_eq!(more.value(), 6);
        keeper.give(more);
        other.join().unwrap();
        drop(keeper);
        assert_eq!(blocks.slabs(), 1, "one is kept, and the others are freed");
        let block = blocks.take(7);
        assert_eq!(blocks.slabs(), 1, "what came back is used again");
        drop(block);
        drop(blocks);
        assert!(gone.load(SeqCst), "a slab without a block in use keeps its owner");
    });
}

// A worker and a plain thread take blocks and free them while all blocks in use are visited: each
// visited block is whole, and exists until it is released.
//
// Caught: a visited block that is dropped under the lock (no end).
#[test]
fn a_walk_meets_blocks_that_come_and_go() {
    check(4, || {
        let (blocks, gone) = blocks();
        let stays = blocks.take(1);
        let worker = thread::spawn({
            let blocks = blocks.clone();
            move || {
                let keeper = blocks.keeper();
                let (one, two) = (keeper.take(2), blocks.take(3));
                keeper.give(one);
                drop(two);
            }
        });
        let mut seen = Vec::new();
        blocks.walk(|block| seen.push(block.value()));
        worker.join().unwrap();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.contains(&1) && seen.iter().all(|value| (1..=3).contains(value)), "{seen:?}");
        drop(stays);
        assert_eq!(blocks.slabs(), 1);
        drop(blocks);
        assert!(gone.load(SeqCst));
    });
}

// The last blocks are freed while the last reference to their owner is dropped.
//
// Caught: an owner that is counted only once for a slab that is used again (crash).
#[test]
fn the_last_block_frees_its_owner() {
    check(4, || {
        let (blocks, gone) = blocks();
        // The slab was in use, and is again.
        drop(blocks.take(1));
        let (one, two) = (blocks.take(2), blocks.take(3));
        let other = thread::spawn(move || drop(one));
        drop(blocks);
        assert!(!gone.load(SeqCst), "a block in use keeps its owner");
        drop(two);
        other.join().unwrap();
        assert!(gone.load(SeqCst));
    });
}
