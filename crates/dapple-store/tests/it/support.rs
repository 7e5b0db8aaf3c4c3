//! Stores to test with.

use dapple_store::{Memory, Redb, Store, StoreOptions};

pub(crate) fn options(partitions: u32) -> StoreOptions {
    let mut options = StoreOptions::default();
    options.partitions = partitions;
    options
}

pub(crate) async fn in_memory() -> Store<Memory> {
    Store::open(Memory, options(3)).await.unwrap()
}

pub(crate) async fn on_disk(directory: &tempfile::TempDir) -> Store<Redb> {
    Store::open(Redb::new(directory.path()), options(3)).await.unwrap()
}

#[cfg(feature = "fjall")]
pub(crate) async fn in_fjall(directory: &tempfile::TempDir) -> Store<dapple_store::Fjall> {
    Store::open(dapple_store::Fjall::new(directory.path().join("fjall")), options(3)).await.unwrap()
}

/// Runs a test on two workers.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = dapple_io::runtime_builder().workers(2).build().unwrap();
    runtime.block_on(test)
}
