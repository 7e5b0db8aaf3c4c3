//! `dapple proxy --to`: clients on one side, small servers on the other, and failures.

mod caching;
mod checking;
mod failing;
mod forwarding;
mod health;
mod hostile;
mod http2;
mod large;
mod reloading;
mod tls;
mod upgrades;

use crate::support::{Server, dapple};

/// A reverse proxy on a free port, with two workers and more options.
pub(super) fn start(to: &str, options: &[&str]) -> Server {
    let mut command = dapple();
    command.args(["proxy", "--port", "0", "--workers", "2", "--to", to]).args(options);
    Server::spawn(command)
}

/// As `start`, with `--metrics` on a free port, which is the second result.
fn start_with_numbers(to: &str, options: &[&str]) -> (Server, u16) {
    let mut command = dapple();
    command.args(["proxy", "--port", "0", "--workers", "2", "--metrics", "127.0.0.1:0", "--to", to]).args(options);
    let mut server = Server::spawn(command);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut server.stdout, &mut line).unwrap();
    let port = line.trim_end().strip_suffix("/metrics").and_then(|line| line.rsplit(':').next()).unwrap();
    let port = port.parse().unwrap();
    (server, port)
}

/// A number of one upstream, or of all if there is only one.
fn number(metrics: u16, name: &str, upstream: &str) -> f64 {
    let page = Server::get_at(("127.0.0.1", metrics), "/metrics");
    let start = format!("{name}{{upstream=\"{upstream}\"}} ");
    let line = page.text().lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {start} in {}", page.text())).parse().unwrap()
}
