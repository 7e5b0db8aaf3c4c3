//! `--net`: a server on TCP of its own, asked by the kernel's TCP through an interface, in a network namespace that the test makes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Client, Site, dapple, eventually, noise};

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);

const NET: &str = "tun:web0,10.7.0.1/24";

/// A running server, and the first line that it printed.
struct OnOwn {
    child: Child,
    line: String,
    port: u16,
}

impl OnOwn {
    fn start(site: &Site, options: &[&str]) -> OnOwn {
        OnOwn::start_on(NET, site, &[&["--port", "0"], options].concat())
    }

    fn start_on(net: &str, site: &Site, options: &[&str]) -> OnOwn {
        let mut command = dapple();
        command.arg("serve").arg(&site.path).args(["--net", net, "--workers", "2"]).args(options);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_once("://10.").and_then(|(_, rest)| rest.split(' ').next());
        let port = address.and_then(|address| address.split_once(':')?.1.trim_end().parse().ok());
        let port = port.unwrap_or_else(|| panic!("no address in {line:?}"));
        OnOwn { child, line, port }
    }

    fn connect(&self) -> Client {
        Client::connect(("10.7.0.1", self.port))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it, and returns what it logged.
    fn end(mut self) -> String {
        self.signal(Signal::TERM);
        assert!(eventually(LIMIT, || self.child.try_wait().unwrap().is_some_and(|status| status.success())));
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }
}

impl Drop for OnOwn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `body` in a process with a network of its own, with the interface `web0` and the kernel at `10.7.0.2`, and the interface `veth0`
/// and the kernel at `10.8.0.2` and `fd08::2`. Without the right to make one, prints a sentence.
fn in_namespace(test: &str, body: fn()) {
    let run =
        |program: &str, args: &[&str]| Command::new(program).args(args).status().is_ok_and(|status| status.success());
    if std::env::var_os(INSIDE).is_some() {
        for args in [
            &["link", "set", "lo", "up"][..],
            &["tuntap", "add", "web0", "mode", "tun", "multi_queue"],
            &["addr", "add", "10.7.0.2/24", "dev", "web0"],
            &["link", "set", "web0", "up"],
            &["link", "add", "veth0", "type", "veth", "peer", "name", "host0"],
            &["link", "set", "veth0", "up"],
            &["addr", "add", "10.8.0.2/24", "dev", "host0"],
            &["addr", "add", "fd08::2/64", "dev", "host0", "nodad"],
            &["link", "set", "host0", "up"],
        ] {
            assert!(run("ip", args), "ip {args:?}");
        }
        return body();
    }
    if !run("unshare", &["--net", "ip", "tuntap", "add", "probe0", "mode", "tun"]) {
        println!("{test}: SKIPPED, it needs root, /dev/net/tun, and the programs unshare and ip");
        return;
    }
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command
        .arg("--net")
        .arg(program)
        .args([&format!("own_network::{test}"), "--exact", "--nocapture"])
        .env(INSIDE, "1");
    assert!(command.status().unwrap().success(), "{test} failed in its namespace");
}

#[test]
fn pages_and_downloads_go_over_the_programs_own_tcp() {
    in_namespace("pages_and_downloads_go_over_the_programs_own_tcp", || {
        let site = Site::with_index();
        let large = noise(30 << 20, 7);
        site.write("large.bin", &large);
        for options in [&["--cache-mb", "1"][..], &["--cache-mb", "2000"]] {
            let server = OnOwn::start(&site, options);
            let mut client = server.connect();
            assert_eq!(client.get("/").text(), "<h1>start</h1>");
            assert!(client.get("/large.bin").body == large, "{options:?}");
            assert_eq!(client.get("/none").status, 404);
            let mut many: Vec<Client> = (0..50).map(|_| server.connect()).collect();
            for client in &mut many {
                assert_eq!(client.get("/").status, 200);
            }
            drop((client, many));
            server.end();
        }
    });
}

#[test]
fn the_last_download_arrives_after_the_signal_to_end() {
    in_namespace("the_last_download_arrives_after_the_signal_to_end", || {
        let site = Site::new();
        let large = noise(30 << 20, 8);
        site.write("large.bin", &large);
        let server = OnOwn::start(&site, &["--drain-s", "600"]);
        let mut client = server.connect();
        client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.read_head().status, 200);
        server.signal(Signal::TERM);
        assert!(client.read_to_end().unwrap() == large);
        server.end();
    });
}

#[test]
fn curl_gets_files_through_a_packet_socket_in_both_families() {
    in_namespace("curl_gets_files_through_a_packet_socket_in_both_families", || {
        let site = Site::with_index();
        let large = noise(3 << 20, 9);
        site.write("large.bin", &large);
        let net = "packet:veth0,10.8.0.1/24,fd08::1/64";
        let server = OnOwn::start_on(net, &site, &["--addr", "10.8.0.1:0", "--addr", "[fd08::1]:8080"]);
        for host in [format!("10.8.0.1:{}", server.port), "[fd08::1]:8080".to_owned()] {
            let got = |path: &str| {
                let url = format!("http://{host}/{path}");
                Command::new("curl").args(["-sgf", "--max-time", "40", &url]).output().unwrap()
            };
            assert_eq!(String::from_utf8_lossy(&got("").stdout), "<h1>start</h1>");
            assert!(got("large.bin").stdout == large, "{host}");
            assert!(!got("none").status.success());
        }
        // Another one may have the same interface, at another address.
        let other = OnOwn::start_on("packet:veth0,10.8.0.3/24", &site, &["--port", "0"]);
        assert_eq!(Client::connect(("10.8.0.3", other.port)).get("/").text(), "<h1>start</h1>");
        other.end();
        server.end();
    });
}

/// Kept connections of a tool that others use, in bursts on two threads: no answer is missing or wrong.
#[test]
fn wrk_gets_pages_over_kept_connections() {
    in_namespace("wrk_gets_pages_over_kept_connections", || {
        let program = std::env::var_os("WRK").unwrap_or_else(|| "wrk".into());
        if Command::new(&program).arg("--version").output().is_err() {
            println!("wrk_gets_pages_over_kept_connections: SKIPPED, it needs the program wrk");
            return;
        }
        let site = Site::with_index();
        let server = OnOwn::start(&site, &[]);
        let url = format!("http://10.7.0.1:{}/", server.port);
        let args = ["--threads", "2", "--connections", "40", "--duration", "1s", "--timeout", "40s"];
        // On a busy machine a second may be too short.
        let answers_forty = || {
            let run = Command::new(&program).args(args).arg(&url).output().unwrap();
            let text = String::from_utf8_lossy(&run.stdout);
            assert!(run.status.success() && !text.contains("Socket errors") && !text.contains("Non-2xx"), "{text}");
            let count = text.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse::<u64>().ok());
            count.unwrap_or_else(|| panic!("no count in {text}")) >= 40
        };
        assert!(eventually(LIMIT, answers_forty));
        server.end();
    });
}

#[test]
fn it_encrypts_counts_and_says_why_it_cannot_be_replaced() {
    in_namespace("it_encrypts_counts_and_says_why_it_cannot_be_replaced", || {
        let site = Site::with_index();
        let server = OnOwn::start(&site, &["--tls-self-signed", "--metrics", "127.0.0.1:9100"]);
        assert!(server.line.contains("https://10.7.0.1:"), "{}", server.line);
        let url = format!("https://10.7.0.1:{}/", server.port);
        let page = Command::new("curl").args(["-sk", &url]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&page.stdout), "<h1>start</h1>");
        let metrics = Client::connect(("127.0.0.1", 9100)).get("/metrics");
        let received =
            metrics.text().lines().find_map(|line| line.strip_prefix("dapple_network_packets_received_total "));
        assert!(received.unwrap().parse::<u64>().unwrap() > 5, "{received:?}");
        server.signal(Signal::USR2);
        let page = Command::new("curl").args(["-sk", &url]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&page.stdout), "<h1>start</h1>");
        let log = server.end();
        assert!(log.contains("cannot be passed on") && log.contains("start the next"), "{log}");
    });
}

#[test]
fn an_interface_that_cannot_be_used_is_refused_with_a_reason() {
    in_namespace("an_interface_that_cannot_be_used_is_refused_with_a_reason", || {
        let site = Site::with_index();
        let refused = |options: &[&str]| {
            let output = dapple().arg("serve").arg(&site.path).args(options).output().unwrap();
            assert!(!output.status.success(), "{options:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        let first = OnOwn::start(&site, &[]);
        assert!(refused(&["--net", "tun:web0"]).contains("tun:NAME,ADDRESS/PREFIX"));
        assert!(refused(&["--net", "tun:web0,127.0.0.1/8"]).contains("not the address of a host"));
        assert!(refused(&["--net", "tun:a-name-of-17-bytes,10.8.0.1/24"]).contains("1 to 15 bytes"));
        assert!(refused(&["--net", NET, "--reuse-port"]).contains("--reuse-port"));
        for (net, reason) in [
            ("packet:none0,10.8.0.1/24", "there is no interface none0"),
            ("packet:lo,10.8.0.1/24", "lo is not an Ethernet interface"),
            ("packet:a-name-of-17-bytes,10.8.0.1/24", "1 to 15 bytes"),
            ("packet:veth0", "packet:NAME,ADDRESS/PREFIX"),
            ("packet:veth0,10.8.0.1/24,via=x", "not the address of a router"),
        ] {
            let said = refused(&["--net", net]);
            assert!(said.contains(reason), "{net}: {said}");
        }
        let elsewhere = refused(&["--net", "tun:web1,10.8.0.1/24", "--addr", "10.9.9.9:80"]);
        assert!(elsewhere.contains("10.9.9.9:80 is not an address of this machine"), "{elsewhere}");
        drop(first);
        let made = Command::new("ip").args(["tuntap", "add", "one0", "mode", "tun"]).status();
        assert!(made.unwrap().success());
        let one_queue = "tun:one0,10.8.0.1/24";
        let mut first = dapple();
        first.arg("serve").arg(&site.path).args(["--net", one_queue, "--port", "0"]).stdout(Stdio::piped());
        let mut first = first.spawn().unwrap();
        BufReader::new(first.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let busy = refused(&["--net", one_queue, "--port", "0"]);
        assert!(busy.contains("one0") && busy.contains("another process has it"), "{busy}");
        first.kill().unwrap();
        first.wait().unwrap();
    });
}

const INSIDE: &str = "DAPPLE_CLI_INSIDE";
