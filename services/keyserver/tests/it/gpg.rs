//! gpg with a home of its own.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::server::Server;

/// One person's gpg; its agents end with it.
pub(crate) struct Gpg {
    home: TempDir,
    keyserver: String,
}

impl Gpg {
    pub(crate) fn new(server: &Server) -> Gpg {
        let home = tempfile::tempdir().unwrap();
        // gpg warns if others may read it.
        std::fs::set_permissions(home.path(), Permissions::from_mode(0o700)).unwrap();
        Gpg { home, keyserver: format!("hkp://{}", server.address) }
    }

    /// A file in the home.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Whether gpg succeeded, and its two outputs.
    pub(crate) fn try_run(&self, args: &[&str]) -> (bool, String, String) {
        let mut gpg = self.command("gpg");
        gpg.args(["--batch", "--keyserver", &self.keyserver]).args(args);
        let Output { status, stdout, stderr } = gpg.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (status.success(), text(stdout), text(stderr))
    }

    /// The standard output of gpg, which must succeed.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let (success, output, errors) = self.try_run(args);
        assert!(success, "gpg {args:?}: {output}{errors}");
        output
    }

    /// As [`run`](Self::run), for what needs the secret key, which has no passphrase.
    pub(crate) fn quick(&self, args: &[&str]) -> String {
        self.run(&[&["--pinentry-mode", "loopback", "--passphrase", ""], args].concat())
    }

    /// Makes a key and returns its fingerprint.
    pub(crate) fn generate(&self, user: &str, algorithm: &str, expires: &str) -> String {
        self.quick(&["--quick-generate-key", user, algorithm, "default", expires]);
        let list = self.run(&["--with-colons", "--list-keys", &format!("={user}")]);
        let fingerprint = list.lines().find(|line| line.starts_with("fpr:"));
        fingerprint.unwrap().split(':').nth(9).unwrap().to_owned()
    }

    /// Imports the revocation certificate that gpg made with a key. A colon keeps people from doing so by mistake.
    pub(crate) fn revoke(&self, fingerprint: &str) {
        let file = self.file("openpgp-revocs.d").join(format!("{fingerprint}.rev"));
        let text = std::fs::read_to_string(&file).unwrap().replace("\n:-----BEGIN", "\n-----BEGIN");
        std::fs::write(&file, text).unwrap();
        self.run(&["--import", file.to_str().unwrap()]);
    }

    /// The packets of a public key, each with its header.
    pub(crate) fn packets(&self, fingerprint: &str) -> Vec<Vec<u8>> {
        let file = self.file("exported");
        self.run(&["--yes", "--output", file.to_str().unwrap(), "--export", fingerprint]);
        let mut bytes = std::fs::read(file).unwrap();
        let mut packets = Vec::new();
        while !bytes.is_empty() {
            // gpg writes these with the old form of header, and one or two bytes of length.
            let len = match bytes[0] & 3 {
                0 => 2 + usize::from(bytes[1]),
                1 => 3 + usize::from(u16::from_be_bytes([bytes[1], bytes[2]])),
                other => panic!("a length of type {other}"),
            };
            packets.push(bytes.drain(..len).collect());
        }
        packets
    }

    /// Writes packets to a file in armor.
    pub(crate) fn armored(&self, packets: &[Vec<u8>]) -> PathBuf {
        let (file, armored) = (self.file("packets"), self.file("armored"));
        std::fs::write(&file, packets.concat()).unwrap();
        self.run(&["--yes", "--output", armored.to_str().unwrap(), "--enarmor", file.to_str().unwrap()]);
        armored
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("GNUPGHOME", self.home.path()).env("LC_ALL", "C").stdin(Stdio::null());
        command
    }
}

impl Drop for Gpg {
    fn drop(&mut self) {
        let _ = self.command("gpgconf").args(["--kill", "all"]).output();
    }
}

/// Whether gpg, its part for networks, and curl are there; tries to install them as root.
pub(crate) fn has_programs() -> bool {
    let are_there = || PROGRAMS.iter().all(|program| on_path(program));
    if !are_there() {
        let mut apt = Command::new("apt-get");
        apt.args(["install", "--yes", "--no-install-recommends", "gnupg", "dirmngr", "curl"]);
        let _ = apt.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).output();
    }
    let found = are_there();
    if !found {
        eprintln!(
            "SKIPPED: {PROGRAMS:?} are not all there and cannot be installed: apt-get install gnupg dirmngr curl"
        );
    }
    found
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).exists())
}

const PROGRAMS: [&str; 5] = ["gpg", "gpgconf", "gpg-agent", "dirmngr", "curl"];
