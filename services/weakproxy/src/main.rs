//! A proxy for weak devices: pictures scaled and pages stripped, as their profiles say.

#![forbid(unsafe_code)]

mod device;
mod fit;
mod fitter;
mod page;
mod picture;
mod proxy;
mod table;

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use clap::Parser;
use dapple::http::Client;
use dapple::http::relay::{AddressKind, Memo, Relay, Room, Via};
use dapple::net::TcpListener;
use dapple::serve::bearer::Token;
use dapple::store::StoreUrl;

/// Fits pages and pictures of http:// to weak devices, by the profiles in a registry of preferences.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// The address of the proxy; with port 0 the system chooses one. Another address than loopback needs a token.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8087")]
    listen: SocketAddr,
    /// The registry of preferences with the profiles of devices.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8082")]
    registry: String,
    /// A file with the token of the registry, if it needs one.
    #[arg(long, value_name = "FILE")]
    registry_token_file: Option<PathBuf>,
    /// The device of clients that name none: DEVICE or USER/DEVICE.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// A file with a token, which each client must then have as its password.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The store with what was made, by engine and directory; it is made if it is not there.
    #[arg(long, value_name = "URL", default_value = "redb:weakproxy-data")]
    store: StoreUrl,
    /// The most that is kept there, in MB.
    #[arg(long, value_name = "MB", default_value_t = 256)]
    cache_mb: u32,
    /// Reaches servers on this machine and in private networks, too.
    #[arg(long)]
    allow_private: bool,
}

#[dapple::main]
async fn main() -> ExitCode {
    let Err(failure) = serve(Args::parse()).await else { return ExitCode::SUCCESS };
    eprintln!("weakproxy: {failure}");
    ExitCode::FAILURE
}

/// Serves until SIGTERM or SIGINT.
async fn serve(args: Args) -> Result<(), Box<dyn Error>> {
    let (token, address) = (args.token_file.map(Token::from_file).transpose()?, args.listen);
    if token.is_none() && !address.ip().is_loopback() {
        return Err(format!("{address} {OPEN_TO_ALL}").into());
    }
    let devices = device::Devices {
        client: Client::builder().redirects_max(0).timeout(REGISTRY_TIME_MAX).body_bytes_max(1 << 20).build()?,
        registry: args.registry.trim_end_matches('/').to_owned(),
        registry_token: args.registry_token_file.map(Token::from_file).transpose()?,
        token,
        default: args.device,
        known: Memo::new(ASK_AGAIN_AFTER, KNOWN_MAX),
    };
    let listening = TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) =
        listening.map_err(|error| format!("cannot listen on {address}: {error}; see --listen"))?;
    let opened = table::Cache::open(args.store.engine(), u64::from(args.cache_mb) << 20).await;
    let cache = opened.map_err(|error| format!("the store {}: {error}", args.store))?;
    let is_allowed = move |kind| args.allow_private && matches!(kind, AddressKind::Loopback | AddressKind::Private);
    let client = Client::builder().redirects_max(0).waiting_per_host(WAITING_MAX);
    let client = client.allow(move |_, address| AddressKind::of(address.ip()).is_none_or(is_allowed)).build()?;
    let relay = Relay::new(client, Via::random("weakproxy"));
    let proxy = proxy::Proxy { devices, relay, cache, fitter: fitter::Fitter::new(), room: Room::new(ROOM_BYTES) };
    println!("weakproxy at http://{address}/");
    // A supervisor or test that reads this line may have closed its end.
    let _ = io::stdout().flush();
    let router = Router::new().fallback(proxy::answer).with_state(Arc::new(proxy));
    // Bodies of requests are passed on as they come.
    let server = dapple::serve(listener, router).body_max_bytes(None).target_delay(TARGET_DELAY);
    Ok(server.with_signals().await?)
}

/// For bodies in flight.
const ROOM_BYTES: usize = 128 << 20;
/// Requests that wait for a connection to one origin.
const WAITING_MAX: usize = 256;
const REGISTRY_TIME_MAX: Duration = Duration::from_secs(3);
/// A change of a profile takes as long to be seen.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Names of devices that are remembered.
const KNOWN_MAX: usize = 10_000;
/// Clients that would wait longer are refused.
const TARGET_DELAY: Duration = Duration::from_secs(2);
const OPEN_TO_ALL: &str = "can be reached from other machines: give a token with --token-file, or listen on 127.0.0.1";
