//! Reads at offsets, completed in the disk's order.

use std::io;

use dapple_flow::flow::{Block, BlockSource, Completion, Queue};
use dapple_sched::{Color, spawn};

use crate::{LIMIT, both_ways, file_runtime, wait_until};

fn file(len: usize) -> (tempfile::TempDir, std::path::PathBuf, Vec<u8>) {
    let dir = tempfile::tempdir().expect("the queue has room");
    let path = dir.path().join("file");
    let data: Vec<u8> = (0..len).map(|n| (n / 251) as u8 ^ n as u8).collect();
    std::fs::write(&path, &data).expect("the queue has room");
    (dir, path, data)
}

#[test]
fn every_request_is_answered_once_with_its_own_bytes() {
    both_ways(2, async || {
        let (_dir, path, data) = file(3_000_000);
        let blocks = BlockSource::open(&path).await?;
        let done = Queue::new(16);
        let asks = spawn({
            let (blocks, done) = (blocks.clone(), done.clone());
            async move {
                for id in 0..400u64 {
                    let completion = Completion::push(&done, move |block: Block| (id, block));
                    blocks.submit(id * 7_919, 4_096, completion).await?;
                }
                io::Result::Ok(())
            }
        });
        let mut seen = vec![false; 400];
        for _ in 0..400 {
            let (id, block) = done.pop().await.expect("the file is open");
            assert!(!std::mem::replace(&mut seen[id as usize], true));
            assert_eq!((block.offset, block.len), (id * 7_919, 4_096));
            let start = data.len().min(block.offset as usize);
            assert!(block.result? == data[start..data.len().min(start + 4_096)]);
        }
        asks.await.expect("the task does not panic")?;
        assert!(done.is_empty());
        assert_eq!(blocks.read(2_999_990, 100).await?, &data[2_999_990..]);
        assert!(blocks.read(3_000_000, 100).await?.is_empty());
        let large = blocks.read(1, 2_999_999).await?;
        assert!(large == data[1..]);
        Ok(())
    });
}

#[test]
fn what_is_asked_for_is_bounded() {
    both_ways(2, async || {
        let (_dir, path, _) = file(1_000);
        let blocks = BlockSource::open(&path).await?;
        assert_eq!(blocks.read(0, usize::MAX).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        blocks.set_requests_max(2);
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let slow = Color::new().wrap(move |_: Block| _ = gate.recv());
        blocks.try_submit(0, 10, &slow)?;
        blocks.try_submit(0, 10, &slow)?;
        assert_eq!(blocks.try_submit(0, 10, ()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(open);
        blocks.read(0, 10).await?;
        let done = Queue::new(1);
        blocks.submit(0, 10, &done).await?;
        assert_eq!(blocks.try_submit(0, 10, &done).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(super::poll_once(blocks.submit(0, 10, &done)).is_pending());
        done.close();
        assert_eq!(blocks.submit(0, 10, &done).await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(done.pop().await.expect("a place was reserved").result.is_ok());
        assert!(done.pop().await.is_none());
        Ok(())
    });
}

/// Requests in flight at the end of the runtime get an error, or have been answered.
#[test]
fn a_shutdown_answers_every_request() {
    for io_uring in [true, false] {
        let (_dir, path, _) = file(3_000_000);
        let runtime = file_runtime(2, io_uring);
        let done = Queue::new(200);
        let asks = runtime.spawn({
            let (path, done) = (path.clone(), done.clone());
            async move {
                let blocks = BlockSource::open(&path).await.expect("the file exists");
                for offset in 0..100 {
                    blocks.try_submit(offset, 2_000_000, &done).expect("the queue has room");
                }
            }
        });
        runtime.block_on(asks).expect("the task does not panic");
        drop(runtime);
        wait_until("all are answered", || done.len() == 100);
        while let Ok(block) = done.try_pop() {
            if let Ok(bytes) = block.result {
                assert_eq!(bytes.len(), 2_000_000);
            }
        }
        assert!(done.pop_blocking(Some(std::time::Duration::from_millis(1))).is_err(), "{LIMIT:?}");
    }
}
