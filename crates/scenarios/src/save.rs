//! A number in a file, which is replaced as a whole: what was acknowledged outlives crashes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dapple_sim::fs::{self, File};
use dapple_sim::time::sleep;
use dapple_sim::{Faults, Simulation};

use crate::Scenario;

pub(crate) const SAVE: Scenario = Scenario {
    name: "save",
    holds: "a number that was acknowledged is in the file after any crash, and the file is whole",
    setup: |sim| save(sim, None),
    bugs: &[
        ("the new file is renamed before it is synced", |sim| save(sim, Some(Bug::NoSync))),
        ("the directory is not synced after the rename", |sim| save(sim, Some(Bug::NoDirectorySync))),
        ("the file is overwritten in its place", |sim| save(sim, Some(Bug::InPlace))),
        ("a number is acknowledged before it is saved", |sim| save(sim, Some(Bug::EarlyAck))),
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    NoSync,
    NoDirectorySync,
    InPlace,
    EarlyAck,
}

fn save(sim: &mut Simulation, bug: Option<Bug>) {
    let acknowledged = Arc::new(AtomicU64::new(0));
    sim.client("db", move || count(acknowledged.clone(), bug));
    sim.faults(&Faults::new(Duration::from_secs(1)).crash("db").freeze("db"));
}

/// Saves the numbers up to [`LAST`], beginning after the one that is in the file.
async fn count(acknowledged: Arc<AtomicU64>, bug: Option<Bug>) {
    let found = match fs::read("/number").await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        bytes => whole(&bytes.unwrap()),
    };
    let lowest = acknowledged.load(Relaxed);
    assert!(found >= lowest, "{lowest} was acknowledged, and {found} is there");
    for number in found + 1..=LAST {
        if bug == Some(Bug::EarlyAck) {
            acknowledged.store(number, Relaxed);
        }
        write(number, bug).await.unwrap();
        acknowledged.store(number, Relaxed);
        sleep(Duration::from_millis(20)).await;
    }
}

async fn write(number: u64, bug: Option<Bug>) -> io::Result<()> {
    let name = if bug == Some(Bug::InPlace) { "/number" } else { "/number.new" };
    let file = File::create(name).await?;
    file.write_all_at(0, number.to_be_bytes().repeat(COPIES)).await?;
    if bug != Some(Bug::NoSync) {
        file.sync_all().await?;
    }
    if bug != Some(Bug::InPlace) {
        fs::rename(name, "/number").await?;
    }
    if bug != Some(Bug::NoDirectorySync) {
        File::open("/").await?.sync_all().await?;
    }
    Ok(())
}

/// The number of a file, which has it many times.
fn whole(bytes: &[u8]) -> u64 {
    assert_eq!(bytes.len(), COPIES * 8, "the file is torn");
    let number = u64::from_be_bytes(*bytes.first_chunk().unwrap_or(&[0; 8]));
    assert_eq!(bytes, number.to_be_bytes().repeat(COPIES), "the file has parts of two numbers");
    number
}

const LAST: u64 = 60;

/// The file has several sectors.
const COPIES: usize = 200;
