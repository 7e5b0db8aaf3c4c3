//! A program that hosts its own stage, for other processes and machines.
//!
//! ```text
//! cargo run --features remote --example stage_host -- --listen 127.0.0.1:7000 --replicas 2
//! curl -d '"stage by stage"' -H 'content-type: application/json' http://127.0.0.1:7000/stages/count
//! ```
//!
//! `--help` lists its options: it does the same as `dapple stage-host`, with other stages.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::process::ExitCode;

use dapple::stage::Stage;
use dapple::stage::remote::{Host, host_main};

fn main() -> ExitCode {
    host_main(Host::builder().register_stages("count", |_replica| count()))
}

/// Counts each word. Two texts at a time, and a hundred waiting; one more is refused.
fn count() -> Stage<String, BTreeMap<String, u32>> {
    Stage::builder("count").queue_len_max(100).width(2).shed().color_each().wrap_fn(|text: String| async move {
        let mut counts = BTreeMap::new();
        for word in text.split_whitespace() {
            *counts.entry(word.to_lowercase()).or_insert(0) += 1;
        }
        Ok::<_, Infallible>(counts)
    })
}
