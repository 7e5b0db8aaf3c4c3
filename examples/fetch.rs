//! Fetches many URLs at a time: `cargo run -p dapple --features http-client --example fetch --
//! URL…`.

use dapple::http::{Client, Error};
use dapple::task::Group;
use std::time::{Duration, Instant};

#[dapple::main]
async fn main() -> Result<(), Error> {
    let client = Client::builder().connections_per_host(8).timeout(Duration::from_secs(30)).build()?;
    let pages = Group::limited(AT_ONCE);
    for url in std::env::args().skip(1) {
        let client = client.clone();
        // Waits while the limit is reached: a million URLs take the memory of 64.
        pages.members().spawn(async move { println!("{}", fetch(&client, &url).await) }).await;
    }
    pages.all_ended().await;
    Ok(())
}

/// Fetches a page, and returns a line about the result.
async fn fetch(client: &Client, url: &str) -> String {
    let begun = Instant::now();
    let page = async {
        let response = client.get(url).await?;
        Ok::<_, Error>((response.status(), response.bytes().await?.len()))
    };
    match page.await {
        Ok((status, len)) => format!("{url}: {status}, {len} bytes in {} ms", begun.elapsed().as_millis()),
        Err(error) => format!("{url}: {error}"),
    }
}

/// The limit of concurrent requests.
const AT_ONCE: usize = 64;
