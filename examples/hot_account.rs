//! A bank with one color for all accounts: the slow program of the tutorial of insight (docs/insight.md).
//!
//! `cargo run --release --example hot_account -- --workers 2 --shards 1 --secs 5`, and then
//! `dapple record 127.0.0.1:7777`.

use std::time::{Duration, Instant};

use dapple::Colored;

/// Burns processor time, as a program with work to do would.
fn work(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Makes deposits until the time is over, and returns how many.
async fn client(number: usize, shards: Vec<Colored<Vec<u64>>>, end: Instant) -> u64 {
    let mut deposits = 0;
    while Instant::now() < end {
        // Checks the order: any worker can do that for any client.
        work(Duration::from_micros(40));
        let account = number * 16 + deposits as usize % 16;
        let accounts = &shards[account % shards.len()];
        let book = move |accounts: &mut Vec<u64>| {
            work(Duration::from_micros(60));
            accounts[account] += 1;
        };
        accounts.with(book).await;
        deposits += 1;
    }
    deposits
}

fn argument(name: &str, default: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

fn main() -> std::io::Result<()> {
    let workers = argument("--workers", 2) as usize;
    let secs = argument("--secs", 5);
    let runtime = dapple::builder().workers(workers).build()?;
    let _entered = runtime.enter();
    match dapple::insight::serve("127.0.0.1:7777", None) {
        Ok(addr) => println!("what holds this program back: http://{addr}/"),
        Err(error) => eprintln!("no page: {error}"),
    }
    let shards: Vec<_> = (0..argument("--shards", 1)).map(|_| Colored::new(vec![0; 16 * 16])).collect();
    let end = Instant::now() + Duration::from_secs(secs);
    let clients: Vec<_> = (0..16).map(|number| dapple::spawn(client(number, shards.clone(), end))).collect();
    let mut deposits = 0;
    for client in clients {
        deposits += runtime.block_on(client).expect("no panic");
    }
    println!("{} deposits a second", deposits / secs.max(1));
    Ok(())
}
