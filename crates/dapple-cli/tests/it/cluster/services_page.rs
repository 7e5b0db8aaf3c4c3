//! The last step of docs/services.md: `webtable` as a service of a cluster, with a real etcd.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Cluster, dapple};

const PAGE: &str = include_str!("../../../../../docs/services.md");

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
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let address = line.trim_end().rsplit(' ').next().expect("an address").to_owned();
    (Table(child), address)
}

/// The status line of the reply to a GET.
fn get(address: &str, path: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return String::new() };
    let sent = write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let mut reply = String::new();
    let _ = sent.and_then(|()| stream.read_to_string(&mut reply));
    reply.lines().next().unwrap_or_default().to_owned()
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
    assert_eq!(get(&serving()[0], "/-/healthy"), "HTTP/1.1 200 OK");
}
