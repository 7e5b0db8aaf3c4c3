//! A color is never held across an await.
use dapple_sched::Colored;

async fn wait(state: Colored<u32>, other: Colored<u32>) {
    state.with(|n| *n += other.with(|n| *n).await).await;
}

async fn wait_later(state: Colored<Vec<u32>>, other: Colored<u32>) {
    state.with(async |list: &mut Vec<u32>| list.push(other.with(|n| *n).await)).await.await;
}

fn main() {}
