//! The command line of a stage host.

use std::net::TcpListener;

use dapple::stage::remote::{Peer, RemoteStage};
use dapple::tls::TlsConnector;
use dapple::tls::rustls::pki_types::CertificateDer;
use dapple::tls::rustls::pki_types::pem::PemObject;

use super::{StageHost, command, until};
use crate::support::Site;

#[test]
fn its_stages_are_listed_and_run() {
    let list = command().arg("--list").output().unwrap();
    let text = String::from_utf8(list.stdout).unwrap();
    assert!(
        list.status.success() && text == "echo\tString -> String\nsign\tTask -> Signed\nspin\tu64 -> u64\n",
        "{text}"
    );

    let host = StageHost::start(&["--stage", "echo", "--stage", "spin", "--replicas", "3"]);
    assert!(host.line.ends_with("with echo, spin\n"), "{}", host.line);
    let runtime = dapple::builder().workers(1).build().unwrap();
    runtime.block_on(async {
        let peer = Peer::new(host.address.as_str()).unwrap();
        let mut echo: RemoteStage<String, String> = peer.stage("echo");
        assert_eq!(echo.send("hello".into()).await.unwrap(), "hello");
        let mut spin: RemoteStage<u64, u64> = peer.stage("spin");
        assert!(spin.send(2_000).await.unwrap() >= 2_000);
    });
}

#[test]
fn only_the_stages_asked_for_run() {
    let host = StageHost::start_at("localhost:0", &["--stage", "echo"]);
    assert!(host.line.ends_with("with echo\n"), "{}", host.line);
    let runtime = dapple::builder().workers(1).build().unwrap();
    runtime.block_on(async {
        let mut spin: RemoteStage<u64, u64> = Peer::new(host.address.as_str()).unwrap().stage("spin");
        let error = spin.send(1).await.unwrap_err();
        assert!(error.to_string().contains("this host has echo"), "{error}");
    });
}

#[test]
fn a_drawing_shows_queue_lengths() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stages.txt");
    let host = StageHost::start(&["--graph", file.to_str().unwrap(), "--replicas", "2"]);
    let at_first = std::fs::read_to_string(&file).unwrap();
    assert_eq!(at_first.matches("spin  0 of 64 wait").count(), 2, "{at_first}");
    assert!(at_first.contains("echo"), "{at_first}");
    let runtime = dapple::builder().workers(1).build().unwrap();
    runtime.block_on(async {
        let peer = Peer::new(host.address.as_str()).unwrap();
        let busy = [(); 8].map(|()| {
            let mut spin: RemoteStage<u64, u64> = peer.stage("spin");
            dapple::spawn(async move { while spin.send(50_000).await.is_ok() {} })
        });
        let waits = |text: &str| text.lines().any(|line| line.contains("spin") && !line.contains("spin  0 of 64 wait"));
        until("the drawing shows a queue", || waits(&std::fs::read_to_string(&file).unwrap())).await;
        busy.iter().for_each(|task| task.abort());
    });
    let drawn = folder.path().join("stages.svg");
    let _host = StageHost::start(&["--graph", drawn.to_str().unwrap()]);
    assert!(std::fs::read_to_string(&drawn).unwrap().starts_with("<svg"));
}

#[test]
fn impossible_options_are_explained() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let site = Site::new();
    site.write("letter", "Dear Sir or Madam");
    let path = |name: &str| site.path.join(name).display().to_string();
    let (missing, letter, folder, below) = (path("no/log"), path("letter"), path(""), path("letter/log"));
    let cases: [(&[&str], i32, &str); 18] = [
        (&["--stage", "ecko"], 2, "there is no stage `ecko`; there is echo, sign, spin"),
        (&["--stage", "sign"], 2, "the stage `sign` needs a log: give --sign-log FILE"),
        (&["--stage", "echo", "--sign-log", &letter], 2, "add --stage sign"),
        (&["--sign-sync"], 2, "--sign-sync needs --sign-log FILE"),
        (&["--sign-log", &missing], 1, "the stage `sign` cannot start: there is no folder for the log"),
        (&["--sign-log", &letter], 1, "is not a log of `dapple sign`, and stays as it is"),
        (&["--sign-log", &folder], 1, "cannot open the log"),
        (&["--sign-log", &below], 1, "cannot open the log"),
        (&["--sign-log", &letter, "--sign-first-secret", &missing], 1, "cannot read the secret"),
        (&["--listen", &address], 1, "another process listens there"),
        (&["--listen", "here"], 2, "write HOST:PORT, for example 127.0.0.1:8080"),
        (&["--listen", "nowhere.invalid:7000"], 2, "cannot find the host \"nowhere.invalid\""),
        (&["--replicas", "0"], 2, "from 1 to 10000"),
        (&["--register", "10.0.0.1:7000"], 2, "in etcd only"),
        (&["--register", "etcd://a:1/x", "--listen", "0.0.0.0:0"], 2, "--advertise"),
        (&["--register", "etcd://a:1/x", "--advertise", "nothing"], 2, "no address"),
        (&["--graph", "/nowhere/g.svg", "--listen", "127.0.0.1:0"], 1, "cannot be written to /nowhere/g.svg"),
        (&["--tls-cert", "/nowhere/a.pem", "--tls-key", "/nowhere/b.pem"], 1, "/nowhere/"),
    ];
    for (options, code, words) in cases {
        let output = command().args(options).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{options:?}: {said}");
        assert!(said.contains(words), "{options:?}: {said}");
    }
}

#[test]
fn connections_can_be_encrypted() {
    let site = Site::new();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    site.write("cert.pem", made.cert.pem());
    site.write("key.pem", made.signing_key.serialize_pem());
    let path = |name: &str| site.path.join(name).display().to_string();
    let host = StageHost::start(&["--tls-cert", &path("cert.pem"), "--tls-key", &path("key.pem")]);
    let port = host.address.rsplit(':').next().unwrap();
    let runtime = dapple::builder().workers(1).build().unwrap();
    runtime.block_on(async {
        let root = CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap();
        let peer = Peer::builder(format!("localhost:{port}")).tls(TlsConnector::with_roots([root]).unwrap());
        let mut echo: RemoteStage<String, String> = peer.build().unwrap().stage("echo");
        assert_eq!(echo.send("secret".into()).await.unwrap(), "secret");
        // A host without a trusted certificate gets nothing, and a plain client gets nothing from a
        // TLS host.
        let strict = Peer::builder(format!("localhost:{port}")).tls(TlsConnector::new().unwrap()).build().unwrap();
        let error = strict.stage::<String, String>("echo").send("secret".into()).await.unwrap_err();
        assert!(error.to_string().contains("the certificate of localhost is not accepted"), "{error}");
        let plain = Peer::new(host.address.as_str()).unwrap();
        assert!(plain.stage::<String, String>("echo").send("secret".into()).await.is_err());
    });
}

#[test]
fn the_signal_to_stop_ends_it_and_a_request_in_it_is_finished() {
    let mut host = StageHost::start(&[]);
    let runtime = dapple::builder().workers(1).build().unwrap();
    runtime.block_on(async {
        let mut spin: RemoteStage<u64, u64> = Peer::new(host.address.as_str()).unwrap().stage("spin");
        spin.send(1).await.unwrap();
        let mut other = spin.clone();
        let long = dapple::spawn(async move { other.send(300_000).await });
        // It has arrived as soon as a later request has come back or was refused.
        let _ = spin.send(1).await;
        host.signal("TERM");
        assert!(long.await.unwrap().unwrap() >= 300_000);
        assert!(host.wait().success());
    });
}
