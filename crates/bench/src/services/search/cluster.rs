//! The processes: partitions of `search`, and a front.

use crate::machine::Guard;
use crate::services::{program, started};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The partitions and the front; dropping it ends them.
pub(super) struct Cluster {
    parts: Vec<Part>,
    front: SocketAddr,
    _front: Guard,
    folder: TempDir,
}

struct Part {
    /// `None` while it is killed.
    process: Option<Guard>,
    address: SocketAddr,
}

/// The documents of each partition. All have the word `color`.
pub(super) const DOCUMENTS: u32 = 250;

impl Cluster {
    pub(super) fn start(parts: u32, limit: Duration) -> Result<Cluster> {
        let folder = tempfile::tempdir().context("cannot make a folder for the stores")?;
        let documents = folder.path().join("documents.md");
        std::fs::write(&documents, text(parts * DOCUMENTS))?;
        let loaded = (0..parts).map(|number| {
            let mut load = Command::new(program("search")?);
            load.args(["load", "--part", &format!("{}/{parts}", number + 1)]).args(store(folder.path(), number));
            let loaded = Guard::start("search load", load.arg(&documents).stdout(Stdio::piped()))?;
            loaded.output(Duration::from_secs(120))?;
            let (process, address) = part(folder.path(), number, "127.0.0.1:0")?;
            Ok(Part { process: Some(process), address })
        });
        let parts: Vec<Part> = loaded.collect::<Result<_>>()?;
        let addresses: Vec<String> = parts.iter().map(|part| part.address.to_string()).collect();
        let limit_ms = limit.as_millis().to_string();
        let listen = ["front", "--listen", "127.0.0.1:0", "--cache-s", "0", "--limit-ms", &limit_ms];
        let (_front, front) = started("search", &[&listen[..], &["--parts", &addresses.join(",")]].concat())?;
        Ok(Cluster { parts, front, _front, folder })
    }

    /// The address of the front.
    pub(super) fn front(&self) -> SocketAddr {
        self.front
    }

    pub(super) fn kill(&mut self, number: usize) -> Result<()> {
        self.parts[number].process.take().context("the partition runs")?.kill()
    }

    pub(super) fn freeze(&mut self, number: usize) -> Result<()> {
        let process = self.parts[number].process.as_ref().context("the partition runs")?;
        let id = Pid::from_raw(process.id() as i32).context("a process has a number")?;
        Ok(kill_process(id, Signal::STOP)?)
    }

    /// Starts a partition again, at its address and with its store.
    pub(super) fn restart(&mut self, number: usize) -> Result<()> {
        let address = self.parts[number].address;
        let (process, at) = part(self.folder.path(), number as u32, &address.to_string())?;
        ensure!(at == address, "the partition listens at {at}, and not at {address} as before");
        self.parts[number].process = Some(process);
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A frozen process would not end by SIGTERM.
        self.parts.drain(..).filter_map(|part| part.process).for_each(|process| _ = process.kill());
    }
}

fn part(folder: &Path, number: u32, address: &str) -> Result<(Guard, SocketAddr)> {
    let store = store(folder, number);
    started("search", &["part", &store[0], &store[1], "--listen", address])
}

fn store(folder: &Path, number: u32) -> [String; 2] {
    ["--store".to_owned(), format!("redb:{}", folder.join(format!("part-{number}")).display())]
}

/// Documents of two hundred words, some of them frequent.
fn text(documents: u32) -> String {
    let mut text = String::new();
    for document in 0..documents {
        text += &format!("# Document {document}\n\nA color");
        for word in 0..200 {
            // Word `n` is in a document for each `n` of them.
            let number = 1 + (document * 131 + word * 17) % 400;
            text += &format!(" w{}", (document * 7 + word) % number);
        }
        text.push_str("\n\n");
    }
    text
}
