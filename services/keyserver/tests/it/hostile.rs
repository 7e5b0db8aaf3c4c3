//! Uploads that would harm others, and mistakes.

use crate::gpg::{Gpg, has_programs};
use crate::server::{Server, program};

#[test]
fn only_its_owner_changes_a_key() {
    if !has_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let (ann, mallory) = (Gpg::new(&server), Gpg::new(&server));
    let key = ann.generate("Ann <ann@example.org>", "future-default", "never");
    ann.run(&["--send-keys", &key]);
    let other = mallory.generate("Mallory <mallory@example.org>", "future-default", "never");

    // The primary key of Ann, with the name, its signature, and the subkey of Mallory.
    let mut forged = ann.packets(&key);
    forged.extend(mallory.packets(&other).drain(1..));
    let (status, text) = server.add(&mallory.armored(&forged));
    assert_eq!((status, text), (200, format!("stored: {key}\n")));
    assert_eq!(server.curl("/pks/lookup?op=index&search=mallory", &[]).0, 404);

    // A signature of Mallory on Ann's name is kept out, too.
    mallory.run(&["--recv-keys", &key]);
    mallory.quick(&["--quick-sign-key", &key]);
    let signatures = |gpg: &Gpg| gpg.run(&["--with-colons", "--list-sigs", &key]).matches("\nsig:").count();
    assert_eq!(signatures(&mallory), 3, "two of Ann, one of Mallory");
    mallory.run(&["--send-keys", &key]);
    let bob = Gpg::new(&server);
    bob.run(&["--recv-keys", &key]);
    assert_eq!(signatures(&bob), 2);
    assert!(bob.run(&["--list-keys", &key]).contains("Ann <ann@example.org>"));

    // Without a name that it has signed, a key is not taken.
    let (status, text) = server.add(&mallory.armored(&[mallory.packets(&other)[..1].to_vec(), forged].concat()[..2]));
    assert!(status == 400 && text.contains("has no user ID that the key itself has signed"), "{text}");
}

#[test]
fn harmful_texts_are_refused_with_a_sentence() {
    if !has_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let gpg = Gpg::new(&server);
    let key = gpg.generate("Ann <ann@example.org>", "future-default", "never");
    let secret = gpg.file("secret");
    let path = secret.to_str().unwrap();
    gpg.quick(&["--armor", "--output", path, "--export-secret-keys", &key]);
    let (status, text) = server.add(&secret);
    assert!(status == 400 && text.starts_with("this is a secret key"), "{text}");
    // The same in the armor of a public key.
    let disguised = std::fs::read_to_string(&secret).unwrap().replace("PRIVATE KEY BLOCK", "PUBLIC KEY BLOCK");
    std::fs::write(&secret, disguised).unwrap();
    assert!(server.add(&secret).1.starts_with("this is a secret key"));

    let packets = gpg.packets(&key);
    let many: Vec<Vec<u8>> = [&packets[..1], &vec![packets[2].clone(); 1000]].concat();
    let many = gpg.armored(&many);
    let (status, text) = server.add(&many);
    assert!(status == 400 && text.contains("too many packets: 1000 are the most"), "{text}");
    let keys = gpg.armored(&vec![packets.concat(); 21]);
    assert!(server.add(&keys).1.contains("too many keys: 20 are the most"));
    for (text, sentence) in [
        ("no key at all", "this is no armored public key"),
        ("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!!!\n-----END PGP PUBLIC KEY BLOCK-----\n", "public key"),
        ("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n/////w==\n-----END PGP PUBLIC KEY BLOCK-----\n", "public key"),
        ("\n", "this is no armored public key"),
    ] {
        let file = gpg.file("text");
        std::fs::write(&file, text).unwrap();
        let (status, answer) = server.add(&file);
        assert!(status == 400 && answer.contains(sentence), "{text}: {status} {answer}");
    }
    let large = gpg.file("large");
    std::fs::write(&large, "a".repeat(2 << 20)).unwrap();
    assert_eq!(server.add(&large).0, 413);
    assert_eq!(server.curl("/pks/add", &["--data", "other=1"]).0, 422);

    for (query, status) in [
        ("op=stats&search=ann", 501),
        ("op=get", 400),
        ("op=get&search=%2C%3A", 400),
        ("op=get&search=0x", 404),
        ("op=index&search=ann", 404),
        ("op=get&search=0x%00%FF", 404),
    ] {
        assert_eq!(server.curl(&format!("/pks/lookup?{query}"), &[]).0, status, "{query}");
    }
    assert_eq!(server.curl(&format!("/pks/lookup?op=get&search={}", "a".repeat(8000)), &[]).0, 404);
    assert_eq!(server.curl(&format!("/pks/lookup?op=get&search=0x{}", "a".repeat(8000)), &[]).0, 400);
    assert!(server.curl("/", &[]).1.contains("This server has 0 keys"), "nothing was stored");
}

#[test]
fn mistakes_are_answered_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str], code: i32| {
        let output = program(args, &folder.path().join("store")).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        text
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text = run(&["--listen", &address], 1);
    assert!(text.starts_with(&format!("keyserver: cannot listen on {address}")) && text.contains("--listen"), "{text}");
    assert!(run(&["--listne", "x"], 2).contains("a similar argument exists: '--listen'"));
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = program(&["--listen", "127.0.0.1:0"], &file).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("keyserver: the store "));
}
