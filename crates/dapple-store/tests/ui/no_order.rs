//! A table without an order has no ranges.

use dapple_store::{Memory, Table};

async fn read(table: Table<u32, u32, Memory>) {
    drop(table.iter());
    drop(table.range(1..5));
}

fn main() {}
