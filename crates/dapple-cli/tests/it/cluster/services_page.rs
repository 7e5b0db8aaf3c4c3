//! The last step of docs/services.md: `webtable` as a service of a cluster, with a real etcd.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::{Cluster, dapple};

const PAGE: &str = include_str!("../../../../../docs/services.md");

/// Generous, for a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// `webtable table`, which ends with the test.
struct Table(Child);

impl Drop for Table {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program, if it was built, as it is where all of the workspace is tested.
fn webtable() -> Option<PathBuf> {
    let program = Path::new(dapple()).with_file_name("webtable");
    if !program.is_file() {
        println!("SKIPPED: {} is not there: cargo build -p webtable", program.display());
        return None;
    }
    Some(program)
}

fn started(program: &Path, store: &Path) -> (Table, String) {
    let mut command = Command::new(program);
    command.args(["table", "--listen", "127.0.0.1:0"]).arg(format!("--store=redb:{}", store.display()));
    let mut table = Table(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    let (sender, receiver) = channel();
    let out = table.0.stdout.take().expect("a pipe");
    std::thread::spawn(move || sender.send(BufReader::new(out).lines().next()));
    let line = receiver.recv_timeout(LIMIT).expect("a line in time").expect("a line").expect("text");
    let address = line.rsplit(' ').next().expect("an address").to_owned();
    (table, address)
}

/// The status line of the reply to a GET; empty if none comes in time.
fn get(address: &str, path: &str) -> String {
    let reply = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address.parse().map_err(io::Error::other)?, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    };
    reply().unwrap_or_default()
}

#[test]
fn the_cluster_keeps_the_front_ends_of_the_page() {
    let Some(program) = webtable() else { return };
    let Some(cluster) = Cluster::start() else { return };
    let (_table, table) = started(&program, &cluster.folder.path().join("store"));
    let (_, toml) = PAGE.split_once("```toml\n").expect("a description");
    let (toml, _) = toml.split_once("```").expect("its end");
    let own = format!("\"{}\"", program.display());
    let toml = toml.replace("\"webtable\"", &own).replace("10.0.0.1:7201", &table);
    assert!(toml.contains(&own) && toml.contains(&table), "{toml}");
    let _host = cluster.host("a", &[]);
    cluster.apply(&toml);
    // The front ends serve: the table has no file, and says so.
    let serving = || -> Vec<String> {
        let status = cluster.run(&["status"]);
        let replicas = status["replicas"].as_array().cloned().unwrap_or_default();
        let listens = replicas.iter().filter_map(|one| Some(one["listens"].as_str()?.to_owned()));
        listens.filter(|address| get(address, "/") == "HTTP/1.1 404 Not Found").collect()
    };
    cluster.until("two front ends serve", || serving().len() == 2);
    // Servers refuse no request of this path for overload.
    assert!(toml.contains("health = \"/health\""), "{toml}");
    assert_eq!(get(&serving()[0], "/health"), "HTTP/1.1 200 OK");
}
