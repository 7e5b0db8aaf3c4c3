//! An engine with commits of one key has no batches, no transactions and no bulk loads.

use dapple_store::engine::{Change, Engine, Entry, Failure, KeyRange, Partition, Place, TableId};
use dapple_store::{Durability, OrderedTable, Store};

struct Single;

impl Engine for Single {
    type Partition = Single;
    const DURABILITIES: &'static [Durability] = &[Durability::Memory];

    fn open(&self, _: Place) -> Result<Single, Failure> {
        Ok(Single)
    }
}

impl Partition for Single {
    fn get(&self, _: TableId, _: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(None)
    }

    fn scan(&self, _: TableId, _: KeyRange<'_>, _: usize) -> Result<Vec<Entry>, Failure> {
        Ok(Vec::new())
    }

    fn len(&self, _: TableId) -> Result<u64, Failure> {
        Ok(0)
    }

    fn tables(&self) -> Result<Vec<TableId>, Failure> {
        Ok(Vec::new())
    }

    fn commit(&self, _: &[Change]) -> Result<(), Failure> {
        Ok(())
    }

    fn recover(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn name(&self) -> String {
        String::new()
    }

    fn verify(&self) -> Result<(), Failure> {
        Ok(())
    }
}

async fn several(store: Store<Single>, table: OrderedTable<u32, u32, Single>) {
    // Operations on one key are there.
    drop(table.put(&1, &2).await);
    // The rest is not.
    drop(store.batch());
    drop(store.transaction(async |_| Ok(())).await);
    drop(table.bulk_load(futures_util::stream::empty(), |_| {}).await);
}

fn main() {}
