//! `dapple files` and `dapple mount` with the certificates of clients, made by openssl and shown by curl.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::file_service::{MountPoint, Service, can_mount, dapple, first_line, outcome, place};
use crate::support::eventually;

fn openssl(folder: &Path, words: &str) {
    let output = Command::new("openssl").args(words.split(' ')).current_dir(folder).output().expect("openssl runs");
    assert!(output.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&output.stderr));
}

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

fn authority(folder: &Path, name: &str) {
    openssl(folder, &format!("req -x509 {KEY} -keyout {name}.key -out {name}.pem -days 2 -subj /CN={name}"));
}

/// A key and a certificate of a user, in `NAME.key` and `NAME.pem`.
fn user(folder: &Path, authority: &str, name: &str) {
    openssl(folder, &format!("req {KEY} -keyout {name}.key -out {name}.csr -subj /O=someone/CN={name}"));
    fs::write(folder.join("client.ext"), "extendedKeyUsage=clientAuth\n").expect("written");
    let by = format!("-CA {authority}.pem -CAkey {authority}.key -CAcreateserial -extfile client.ext");
    openssl(folder, &format!("x509 -req -in {name}.csr -out {name}.pem -days 1 {by}"));
}

impl Service {
    /// The status that curl gets for an upload with the certificate of this user; 0 if the handshake failed.
    fn upload_as(&self, user: Option<&str>, words: &[&str]) -> u16 {
        let mut command = Command::new("curl");
        command.current_dir(&self.place).args(["-sS", "--cacert", "state/certificate.pem", "-o", "/dev/null"]);
        command.args(["-w", "%{http_code}", "-T", "rules.toml"]).args(words);
        if let Some(user) = user {
            command.args(["--cert", &format!("{user}.pem"), "--key", &format!("{user}.key")]);
        }
        let output = command.arg(format!("{}/f", self.url)).output().expect("curl runs");
        print!("{user:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).parse().expect("a status")
    }
}

fn hang_up(child: &Child) {
    kill_process(Pid::from_child(child), Signal::HUP).expect("a signal");
}

#[test]
fn clients_log_in_by_certificate() {
    let place = place();
    let folder = place.path();
    ["one", "two"].into_iter().for_each(|name| authority(folder, name));
    ["ann", "bob", "token"].into_iter().for_each(|name| user(folder, "one", name));
    user(folder, "two", "eve");
    let rules = "default = \"nothing\"\n[[rule]]\npath = \"/\"\nusers = [\"ann\", \"eve\"]\nmay = \"write\"\n\
        [[rule]]\npath = \"/\"\nusers = [\"bob\"]\nmay = \"read\"\n";
    fs::write(folder.join("rules.toml"), rules).expect("written");
    fs::copy(folder.join("one.pem"), folder.join("authorities.pem")).expect("copied");
    let options =
        ["--lease-s", "1", "--addr", "127.0.0.1:0", "--client-ca", "authorities.pem", "--rules", "rules.toml"];
    let service = Service::start(folder, &options);
    assert!(!folder.join("state/token").exists(), "certificates are the login");
    assert_eq!(service.upload_as(Some("ann"), &[]), 201);
    assert_eq!(service.upload_as(Some("bob"), &[]), 403, "the rules name it");
    assert_eq!(service.upload_as(None, &[]), 401, "a client without a certificate is asked for a login");
    assert_eq!(service.upload_as(Some("token"), &[]), 401, "that name is no certificate's");
    assert_eq!(
        service.upload_as(Some("ann"), &["-u", "ann:wrong password"]),
        401,
        "a login goes before the certificate"
    );
    assert_eq!(service.upload_as(Some("eve"), &[]), 0, "an authority that is not trusted");

    let words = ["mount", &service.url, "mounted", "--ca-cert", "state/certificate.pem", "--cert", "ann.pem"];
    let (code, text) = outcome(&words, folder);
    assert!(code == Some(2) && text.contains("--key"), "{text}");
    let mounted = can_mount().then(|| {
        fs::create_dir(folder.join("mounted")).expect("a directory");
        let words = [&words[..], &["--key", "ann.key"]].concat();
        let mut child = dapple(&words, folder).stdout(Stdio::piped()).spawn().expect("it starts");
        let line = first_line(&mut child);
        assert!(line.contains("is mounted at"), "{line}");
        MountPoint { child, dir: folder.join("mounted") }
    });
    if let Some(mount) = &mounted {
        fs::write(mount.dir.join("by-ann"), "1").expect("written");
    }

    fs::copy(folder.join("two.pem"), folder.join("authorities.pem")).expect("copied");
    service.signal(Signal::HUP);
    let limit = Duration::from_secs(30);
    assert!(eventually(limit, || service.upload_as(Some("eve"), &[]) == 204));
    assert_eq!(service.upload_as(Some("ann"), &[]), 0);
    if let Some(mount) = mounted {
        let refused =
            fs::write(mount.dir.join("more"), "2").expect_err("its connection has a certificate of the first");
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ACCESS.raw_os_error()));
        user(folder, "two", "ann");
        hang_up(&mount.child);
        assert!(eventually(limit, || fs::write(mount.dir.join("more"), "3").is_ok()));
        mount.unmount();
        assert_eq!(fs::read_to_string(folder.join("tree/more")).expect("the file"), "3");
    }
    // A file that cannot be used changes nothing.
    fs::write(folder.join("authorities.pem"), "nonsense").expect("written");
    service.signal(Signal::HUP);
    assert_eq!(service.upload_as(Some("eve"), &[]), 204);
    assert!(service.stop());
    let check = [&["files", "tree", "--state", "state", "--check"], &options[4..]].concat();
    let (code, text) = outcome(&check, folder);
    assert!(code != Some(0) && text.contains("authorities.pem"), "{text}");
}
