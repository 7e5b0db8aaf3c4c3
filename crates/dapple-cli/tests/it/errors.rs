//! Errors that people can act on, with exit codes for scripts.

use std::net::TcpListener;

use crate::support::{Server, Site, dapple, noise};

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = dapple().args(arguments).output().unwrap();
    assert_eq!(output.stdout, b"", "nothing goes to stdout");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_taken_port_names_its_owner() {
    let site = Site::with_index();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (code, message) = run(&["serve", site.path.to_str().unwrap(), "--port", &port]);
    assert_eq!(code, Some(1));
    assert!(message.contains(&format!("port {port} is taken by ")), "{message}");
    assert!(message.contains(&format!("(process {})", std::process::id())), "{message}");
    assert!(message.contains("choose another port with `--port N`"), "{message}");
    // The advice names the option that was given.
    for command in [&["serve", site.path.to_str().unwrap()][..], &["proxy"]] {
        let address = format!("127.0.0.1:{port}");
        let (code, message) = run(&[command, &["--addr", &address]].concat());
        assert!(code == Some(1) && message.contains("choose another port with `--addr HOST:PORT`"), "{message}");
    }
}

#[test]
fn a_missing_directory_is_named() {
    let (code, message) = run(&["serve", "/no/such/place", "--port", "0"]);
    assert_eq!(code, Some(1));
    assert!(message.contains("there is no directory \"/no/such/place\""), "{message}");
}

#[test]
fn a_file_is_not_a_directory() {
    let site = Site::with_index();
    let (code, message) = run(&["serve", site.path.join("index.html").to_str().unwrap(), "--port", "0"]);
    assert_eq!(code, Some(1));
    assert!(message.contains("is a file"), "{message}");
    assert!(message.contains(site.path.to_str().unwrap()), "{message}");
}

#[test]
fn an_address_of_another_machine_is_refused() {
    let site = Site::with_index();
    let (code, message) = run(&["serve", site.path.to_str().unwrap(), "--addr", "192.0.2.1:8080"]);
    assert_eq!(code, Some(1));
    assert!(message.contains("not an address of this machine"), "{message}");
}

#[test]
fn a_bad_command_line_is_code_two() {
    let bad: [&[&str]; 8] = [
        &["serve"],
        &["serve", ".", "--paint"],
        &["serve", ".", "--port", "99999"],
        &["serve", ".", "--port", "http"],
        &["serve", ".", "--workers", "0"],
        &["serve", ".", "--addr", "localhost"],
        &["serve", ".", "--addr", "localhost:80", "--port", "80"],
        &["sevre"],
    ];
    for arguments in bad {
        let (code, message) = run(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {message}");
        assert!(message.contains("--help") || message.contains("Usage"), "{message}");
    }
}

/// Cached files, and then idle connections, free descriptors for requested files.
#[test]
fn files_are_found_although_there_are_no_descriptors() {
    let site = Site::with_index();
    (0..41).for_each(|file| site.write(&format!("{file}.bin"), noise(8 << 20, file)));
    let server = Server::start_short_of_files(&site.path, 64);
    let downloads = (0..20).map(|file| {
        let mut client = server.connect();
        client.send(format!("GET /{file}.bin HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.read_head().status, 200);
        client
    });
    let _downloads: Vec<_> = downloads.collect();
    let mut client = server.connect();
    for file in 20..41 {
        let part = client.request("GET", &format!("/{file}.bin"), "Range: bytes=1-3\r\n");
        assert_eq!((part.status, &part.body[..]), (206, &noise(8, file)[1..4]), "{file}");
    }
}

#[test]
fn few_descriptors_slow_clients_down_but_lose_none() {
    let site = Site::with_index();
    let server = Server::start_short_of_files(&site.path, 64);
    let got: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..150)
            .map(|_| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.connect();
                    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                    client.read_response().text().to_owned()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(got.iter().all(|body| body == "<h1>start</h1>"));
}
