//! The legs of conversations in rooms of XMPP. The program `sanctio` is the hub that keeps them.

#![forbid(unsafe_code)]

mod xmpp;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use sanctio_legs::link;
use xmpp::Xmpp;

/// Carries the conversations of a hub, the program sanctio, to rooms of XMPP, as a component of their server: legs such as
/// xmpp:talk@rooms.example.org.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    /// The server of XMPP, at its port for components.
    #[arg(value_name = "HOST:PORT")]
    server: String,
    /// The name of the component in the server's configuration.
    #[arg(long, value_name = "NAME")]
    component: String,
    /// A file with the component's secret.
    #[arg(long, value_name = "FILE", value_parser = secret)]
    secret_file: Secret,
    /// The hub.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8086")]
    hub: String,
    /// A file with the token of the hub.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The name of the gateway in rooms.
    #[arg(long, value_name = "NAME", default_value = "sanctio")]
    nick: String,
}

/// The secret of a component, without the line end of its file.
fn secret(file: &str) -> Result<Secret, std::io::Error> {
    std::fs::read_to_string(file).map(|text| Secret(text.trim().to_owned()))
}

#[derive(Clone)]
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[dapple::main]
async fn main() -> ExitCode {
    let Args { server, component, secret_file, hub, token_file, nick } = Args::parse();
    let xmpp = Xmpp { name: component, secret: secret_file.0, nick };
    match link::carry(xmpp, server, &hub, token_file).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("sanctio-xmpp: {failure}");
            ExitCode::FAILURE
        }
    }
}

const EXAMPLES: &str = "Examples:
  sanctio-xmpp 127.0.0.1:5347 --component gateway.example.org --secret-file secret
  curl -X PUT --json '{\"xmpp:talk@rooms.example.org\": null}' http://127.0.0.1:8086/talks/talk";
