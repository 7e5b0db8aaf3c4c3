//! One conversation across networks: the part that keeps it, and shows it on the web.
//!
//! Other programs carry it to other networks: `sanctio-chat` to IRC and XMPP, `sanctio-mail` by mail. Each is a client of
//! this one, over HTTP, and may die by itself.
//!
//! A message is delivered at most once. A program listens with the name of a leg to `events`, which are the messages that
//! were not claimed for the leg. Right before it sends one, it *claims* it: the cursor of the leg in the store passes the
//! message, and that is on the disk. If it dies then, the message may be lost on this leg, and is in the archive; it is
//! never sent again. A claim is a compare and set, so that not even two programs with the same leg send one message twice.
//! To claim after the network has confirmed the message was rejected: that is at least once. So was one program with all
//! protocols: its networks would fail together, and it had more than twice the lines.

#![forbid(unsafe_code)]

mod archive;
mod gateway;
mod said;
mod translate;
mod web;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use dapple::net::TcpListener;
use dapple::serve::bearer::{Guard, Token};
use dapple::signal::{SIGINT, SIGTERM, signal};
use dapple::store::StoreUrl;
use dapple::task::race;
use gateway::Gateway;
use translate::{Dictionary, translator};

/// Carries conversations between IRC, XMPP, mail and the web, and keeps them.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    /// The address of the web chat; with port 0 the system chooses one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8086")]
    listen: SocketAddr,
    /// The store, by engine and directory; it is made if it is not there.
    #[arg(long, value_name = "URL", default_value = "redb:sanctio-data")]
    store: StoreUrl,
    /// A file with a token: the password of the web chat, or `Authorization: Bearer TOKEN`. Another address than loopback
    /// needs it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A dictionary instead of the one that is built in: languages in the first line, a word in each of them in the others,
    /// with tabs between.
    #[arg(long, value_name = "FILE", value_parser = Dictionary::read)]
    dictionary: Option<Dictionary>,
    /// A server that translates instead of a dictionary, such as LibreTranslate's http://HOST:PORT/translate.
    #[arg(long, value_name = "URL")]
    translate_url: Option<String>,
    /// The most messages that the archive of a conversation keeps; the oldest make room.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    keep: u64,
}

/// The reason why the program ends, for its user.
type Failure = Box<dyn std::error::Error>;

#[dapple::main]
async fn main() -> ExitCode {
    match serve(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("sanctio: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until SIGTERM or SIGINT.
async fn serve(Args { listen, store: url, token_file, dictionary, translate_url, keep }: Args) -> Result<(), Failure> {
    let guard = Guard::new(token_file.map(Token::from_file).transpose()?, listen)?;
    let choose = |error| format!("cannot listen on {listen}: {error}; choose another address with --listen");
    let listener = TcpListener::bind(listen).map_err(choose)?;
    let dictionary = dictionary.unwrap_or_else(|| Dictionary::new(include_str!("dictionary.tsv")));
    let translator = translator(dictionary, translate_url)?;
    let gateway = Gateway::open(url.engine(), keep, translator).await;
    let gateway = Arc::new(gateway.map_err(|error| format!("the store {url}: {error}"))?);
    let mut signals = (signal(SIGTERM)?, signal(SIGINT)?);
    let ending = gateway.ending.clone();
    let asked = dapple::spawn(async move {
        race(signals.0.recv(), signals.1.recv()).await;
        ending.cancel();
    });
    println!("listening on {}", listener.local_addr()?);
    // A supervisor or test that reads this line may have closed its end.
    let _ = io::stdout().flush();
    let server = dapple::serve(listener, web::router(gateway, guard)).body_max_bytes(BODY_LEN_MAX);
    let served = server.target_delay(TARGET_DELAY).with_signals().await;
    asked.abort();
    Ok(served?)
}

const BODY_LEN_MAX: u64 = 64 << 10;
/// A message waits for the disk.
const TARGET_DELAY: Duration = Duration::from_secs(2);
const EXAMPLES: &str = "Examples:
  sanctio
  curl -X PUT --json '{\"irc:#talk\": \"en\", \"mail:ann@example.org\": \"de\"}' http://127.0.0.1:8086/talks/talk
  curl --json '{\"name\": \"ann\", \"text\": \"hello\"}' http://127.0.0.1:8086/talks/talk/messages
  curl 'http://127.0.0.1:8086/talks/talk/messages?from=1790000000000&words=hello'
  curl -N http://127.0.0.1:8086/talks/talk/events";
