//! The program as its users meet it: gpg, curl, and clients that mean harm.

mod gpg;
mod hostile;
mod server;

use gpg::{Gpg, has_programs};
use server::Server;

#[test]
fn gpg_sends_searches_and_receives_keys() {
    if !has_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let (ann, bob) = (Gpg::new(&server), Gpg::new(&server));
    let key = ann.generate("Ann Example <ann@example.org>", "future-default", "1y");
    let rsa = ann.generate("Ann's old key <old@example.org>", "rsa2048", "never");
    ann.run(&["--send-keys", &key, &rsa]);

    let found = bob.run(&["--with-colons", "--search-keys", "ann@example.org"]);
    let line = found.lines().find(|line| line.starts_with("pub:")).unwrap();
    assert!(found.contains("info:1:1\n") && line.starts_with(&format!("pub:{key}:22::")), "{found}");
    let columns: Vec<u64> = line.split(':').skip(4).take(2).map(|column| column.parse().unwrap()).collect();
    assert_eq!(columns[1] - columns[0], 365 * 24 * 3600, "the key expires after a year: {found}");
    assert!(found.contains("uid:Ann%20Example%20<ann@example.org>:"), "{found}");
    let both = bob.run(&["--with-colons", "--search-keys", "example"]);
    assert!(both.contains("info:1:2\n") && both.contains(&format!("pub:{rsa}:1:2048:")), "{rsa}: {both}");

    // By fingerprint, by the ID of a subkey, and after a restart of the server.
    bob.run(&["--recv-keys", &key]);
    assert!(bob.run(&["--list-keys", &key]).contains("Ann Example <ann@example.org>"));
    drop(server);
    let server = Server::start(folder.path());
    let cleo = Gpg::new(&server);
    let subkey = ann.run(&["--with-colons", "--list-keys", &key]);
    let subkey = subkey.lines().find(|line| line.starts_with("sub:")).unwrap().split(':').nth(4).unwrap().to_owned();
    cleo.run(&["--recv-keys", &subkey]);
    assert!(cleo.run(&["--list-keys", &key]).contains("Ann Example"));
    assert!(!cleo.try_run(&["--recv-keys", "0123456789ABCDEF0123456789ABCDEF01234567"]).0, "no such key");
}

#[test]
fn a_revocation_reaches_clients_that_refresh() {
    if !has_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let (ann, bob) = (Gpg::new(&server), Gpg::new(&server));
    let key = ann.generate("Ann <ann@example.org>", "future-default", "never");
    ann.run(&["--send-keys", &key]);
    bob.run(&["--recv-keys", &key]);
    assert!(bob.run(&["--with-colons", "--list-keys", &key]).contains("\npub:-:"));

    ann.quick(&["--quick-add-uid", &key, "Ann <new@example.org>"]);
    ann.quick(&["--quick-revoke-uid", &key, "Ann <ann@example.org>"]);
    ann.run(&["--send-keys", &key]);
    let found = bob.run(&["--with-colons", "--search-keys", "new@example.org"]);
    let flags =
        |user: &str| found.lines().find(|line| line.contains(user)).unwrap().rsplit(':').next().unwrap().to_owned();
    assert_eq!((flags("<ann@").as_str(), flags("<new@").as_str()), ("r", ""), "{found}");

    ann.revoke(&key);
    ann.run(&["--send-keys", &key]);
    bob.run(&["--refresh-keys"]);
    assert!(bob.run(&["--with-colons", "--list-keys", &key]).contains("\npub:r:"));
    let found = bob.run(&["--with-colons", "--search-keys", "new@example.org"]);
    assert!(found.lines().any(|line| line.starts_with("pub:") && line.ends_with(":r")), "{found}");
}

#[test]
fn people_search_on_a_page() {
    if !has_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let ann = Gpg::new(&server);
    let key = ann.generate("<script>alert(1)</script> <ann@example.org>", "future-default", "never");
    ann.run(&["--send-keys", &key]);
    let (status, page) = server.curl("/", &[]);
    assert!(status == 200 && page.contains("This server has 1 keys"), "{page}");
    let (status, page) = server.curl("/pks/lookup?op=index&search=ann%40example.org", &[]);
    assert!(
        status == 200 && page.contains(&key) && page.contains("&lt;script&gt;alert") && !page.contains("<script"),
        "{page}"
    );
    let (status, armored) = server.curl(&format!("/pks/lookup?op=get&search=0x{}", key.to_lowercase()), &[]);
    assert!(status == 200 && armored.starts_with("-----BEGIN PGP PUBLIC KEY BLOCK-----"), "{armored}");
    let exact = |search: &str| server.curl(&format!("/pks/lookup?op=index&exact=on&search={search}"), &[]).0;
    assert_eq!((exact("ann%40example.org"), exact("example.org")), (200, 404));
}
