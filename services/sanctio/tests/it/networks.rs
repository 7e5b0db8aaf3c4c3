//! The networks: ngircd with ii, prosody with slixmpp, and aiosmtpd with curl.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::programs::{Gateway, Process, has_or_installs, program, until};

/// Whether Debian's Python has this module, as [`has_or_installs`].
pub(crate) fn has_python(module: &str) -> bool {
    has_or_installs(&format!("Python's {module}"), &format!("python3-{module}"), || {
        let output = Command::new("/usr/bin/python3").args(["-c", &format!("import {module}")]).output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// A port that was free a moment ago, for servers that cannot say which one they got.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) fn wait_for_port(port: u16) {
    until("the server does not listen", || TcpStream::connect(("127.0.0.1", port)).ok());
}

/// A server of IRC.
pub(crate) struct Ngircd {
    process: Option<Process>,
    config: PathBuf,
    port: u16,
}

impl Ngircd {
    pub(crate) fn start(folder: &Path) -> Ngircd {
        let port = free_port();
        let config = folder.join("ngircd.conf");
        let text = format!(
            "[Global]\nName = irc.example.test\nInfo = test\nListen = 127.0.0.1\nPorts = {port}\nMotdPhrase = hello\n\
             PidFile = {}\n[Options]\nPAM = no\nDNS = no\nIdent = no\n[Limits]\nMaxConnectionsIP = 0\nMaxPenaltyTime = 0\n",
            folder.join("ngircd.pid").display()
        );
        fs::write(&config, text).unwrap();
        let mut server = Ngircd { process: None, config, port };
        server.start_again();
        server
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn start_again(&mut self) {
        let mut command = Command::new("ngircd");
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
        command.env("PATH", path).arg("--nodaemon").arg("--config").arg(&self.config).stdout(Stdio::null());
        self.process = Some(Process::start(command.stderr(Stdio::null())));
        wait_for_port(self.port);
    }

    pub(crate) fn stop(&mut self) {
        self.process = None;
    }
}

/// A person on IRC, with the client ii, in one channel.
pub(crate) struct Ii {
    _process: Process,
    channel: PathBuf,
}

impl Ii {
    pub(crate) fn start(folder: &Path, server: &Ngircd, nick: &str) -> Ii {
        let home = folder.join(format!("ii-{nick}-{}", free_port()));
        let mut command = Command::new("ii");
        command.args(["-s", "127.0.0.1", "-p", &server.port.to_string(), "-n", nick, "-i"]).arg(&home);
        let process = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let server = home.join("127.0.0.1");
        until("ii has no server", || server.join("in").exists().then_some(()));
        write_line(&server.join("in"), "/j #talk");
        let channel = server.join("#talk");
        until("ii is not in the channel", || channel.join("in").exists().then_some(()));
        let ii = Ii { _process: process, channel };
        ii.wait_for(&format!("{nick}("));
        ii
    }

    pub(crate) fn say(&self, text: &str) {
        write_line(&self.channel.join("in"), text);
    }

    /// The messages in the channel, each line as `<NICK> TEXT`.
    pub(crate) fn heard(&self) -> Vec<String> {
        let text = fs::read(self.channel.join("out")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.lines().filter_map(|line| Some(line.split_once(' ')?.1.to_owned()));
        lines.filter(|line| line.starts_with('<')).collect()
    }

    /// How often a text is in the channel, also in the lines about clients that come and go.
    pub(crate) fn count(&self, text: &str) -> usize {
        let out = fs::read(self.channel.join("out")).unwrap_or_default();
        String::from_utf8_lossy(&out).matches(text).count()
    }

    pub(crate) fn wait_for(&self, text: &str) {
        let what = format!("{text} does not come to {}", self.channel.display());
        until(&what, || (self.count(text) > 0).then_some(()));
    }
}

/// Writes a line to a named pipe.
fn write_line(pipe: &Path, line: &str) {
    let mut file: File = OpenOptions::new().write(true).open(pipe).unwrap();
    // In one piece: ii takes a part for the end.
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// A server of XMPP, with the room `talk@rooms.localhost` and the component `gateway.localhost`.
pub(crate) struct Prosody {
    process: Option<Process>,
    folder: PathBuf,
    clients: u16,
    components: u16,
}

impl Prosody {
    pub(crate) fn start(folder: &Path) -> Prosody {
        let (folder, clients, components) = (folder.join("prosody"), free_port(), free_port());
        fs::create_dir_all(folder.join("data")).unwrap();
        fs::write(folder.join("secret"), "0123456789abcdef\n").unwrap();
        let path = folder.display();
        let config = format!(
            r#"run_as_root = true
            pidfile = "{path}/pid"
            data_path = "{path}/data"
            log = {{ debug = "{path}/log" }}
            interfaces = {{ "127.0.0.1" }}
            c2s_ports = {{ {clients} }} s2s_ports = {{}} http_ports = {{}} https_ports = {{}}
            component_ports = {{ {components} }} component_interfaces = {{ "127.0.0.1" }}
            modules_enabled = {{ "roster", "saslauth", "disco" }} modules_disabled = {{ "s2s" }}
            c2s_require_encryption = false allow_unencrypted_plain_auth = true
            authentication = "internal_plain"
            VirtualHost "localhost"
            Component "rooms.localhost" "muc"
              modules_enabled = {{ "muc_mam" }} muc_room_locking = true muc_room_default_persistent = true
            Component "gateway.localhost"
              component_secret = "0123456789abcdef"
            "#
        );
        fs::write(folder.join("config.lua"), config).unwrap();
        let accounts = folder.join("data/localhost/accounts");
        fs::create_dir_all(&accounts).unwrap();
        for name in ["ann", "ben"] {
            fs::write(accounts.join(format!("{name}.dat")), "return { [\"password\"] = \"secret\"; };\n").unwrap();
        }
        let mut server = Prosody { process: None, folder, clients, components };
        server.start_again();
        server
    }

    pub(crate) fn start_again(&mut self) {
        let mut command = Command::new("prosody");
        command.arg("--config").arg(self.folder.join("config.lua")).arg("-F").stdout(Stdio::null());
        self.process = Some(Process::start(command.stderr(Stdio::null())));
        wait_for_port(self.clients);
        wait_for_port(self.components);
    }

    pub(crate) fn stop(&mut self) {
        self.process = None;
    }

    /// Waits until the gateway has made the room, which others cannot enter before.
    pub(crate) fn wait_for_room(&self) {
        until("the gateway makes no room", || {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            // Its only request to the room takes the defaults.
            let is_made = |line: &str| line.contains("[component]: <iq") && line.contains("to='talk@rooms.localhost'");
            log.lines().any(is_made).then_some(())
        });
    }

    /// The arguments of a gateway's program.
    pub(crate) fn args(&self) -> [String; 4] {
        let secret = self.folder.join("secret").display().to_string();
        let component = "--component=gateway.localhost".to_owned();
        [format!("127.0.0.1:{}", self.components), component, "--secret-file".to_owned(), secret]
    }
}

/// A person in the room, with slixmpp.
pub(crate) struct Person {
    process: Process,
    input: ChildStdin,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Person {
    pub(crate) fn start(server: &Prosody, nick: &str) -> Person {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/person.py");
        // Debian's, which has Debian's packages.
        let mut command = Command::new("/usr/bin/python3");
        command.args([script, "127.0.0.1", &server.clients.to_string(), "talk@rooms.localhost", nick]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut process = Process(child);
        let (input, output) = (process.0.stdin.take().unwrap(), process.0.stdout.take().unwrap());
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let heard = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                heard.lock().unwrap().push(line);
            }
        });
        let person = Person { process, input, lines };
        person.wait_for("joined");
        person
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.input.write_all(format!("{text}\n").as_bytes()).unwrap();
    }

    /// The messages in the room, each as `NICK: TEXT` with `\\n` for a line end.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.lines.lock().unwrap().iter().filter(|line| *line != "joined").cloned().collect()
    }

    pub(crate) fn wait_for(&self, text: &str) {
        until(&format!("{text} does not come to the room ({})", self.process.0.id()), || {
            self.lines.lock().unwrap().iter().any(|line| line.contains(text)).then_some(())
        });
    }
}

/// A server that puts mails into a folder.
pub(crate) struct MailServer {
    process: Option<Process>,
    folder: PathBuf,
    port: u16,
}

impl MailServer {
    pub(crate) fn start(folder: &Path) -> MailServer {
        let mut server = MailServer { process: None, folder: folder.join("mails"), port: free_port() };
        server.start_again();
        server
    }

    pub(crate) fn start_again(&mut self) {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-m", "aiosmtpd", "-n", "-c", "aiosmtpd.handlers.Mailbox", "-l", &self.address()]);
        self.process = Some(Process::start(command.arg(&self.folder).stderr(Stdio::null())));
        wait_for_port(self.port);
    }

    pub(crate) fn stop(&mut self) {
        self.process = None;
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The mails to this address.
    pub(crate) fn mails(&self, to: &str) -> Vec<String> {
        let files = fs::read_dir(self.folder.join("new")).into_iter().flatten();
        let mails = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        mails.filter(|mail| mail.contains(&format!("X-RcptTo: {to}\n"))).collect()
    }

    /// Waits for this many mails.
    pub(crate) fn wait_for(&self, to: &str, count: usize) -> Vec<String> {
        until(&format!("{to} does not get {count} mails"), || Some(self.mails(to)).filter(|mails| mails.len() >= count))
    }
}

/// The gateway's program for mails.
pub(crate) struct Mailbox {
    pub(crate) process: Process,
    pub(crate) address: String,
}

impl Mailbox {
    pub(crate) fn start(gateway: &Gateway, server: &MailServer) -> Mailbox {
        Mailbox::start_at(gateway, server, "127.0.0.1:0")
    }

    pub(crate) fn start_at(gateway: &Gateway, server: &MailServer, listen: &str) -> Mailbox {
        let mut command = Command::new(program("sanctio-mail"));
        command.args(["--domain", "chat.example", "--relay", &server.address(), "--hub", &gateway.base]);
        let mut process = Process::start(command.args(["--listen", listen]).stdout(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().rsplit_once("listening on ").unwrap_or_else(|| panic!("{line}")).1.to_owned();
        Mailbox { process, address }
    }

    /// Sends a mail with curl, and returns whether the gateway has taken it.
    pub(crate) fn send(&self, from: &str, to: &str, mail: &str) -> bool {
        Mailbox::send_to(&self.address, from, to, mail)
    }

    pub(crate) fn send_to(address: &str, from: &str, to: &str, mail: &str) -> bool {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--crlf", "--upload-file", "-", "--mail-from", from, "--mail-rcpt", to]);
        let child = curl.arg(format!("smtp://{address}")).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut child = child.unwrap();
        child.stdin.take().unwrap().write_all(mail.as_bytes()).unwrap();
        child.wait().unwrap().success()
    }
}
