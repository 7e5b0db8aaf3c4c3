//! No way out of the served directory.

use std::os::unix::fs::symlink;

use crate::support::{Server, Site, shows_within_a_second};

#[test]
fn no_spelling_of_a_path_climbs_out() {
    let outer = Site::new();
    outer.write("secret.txt", "secret");
    outer.write("site/index.html", "start");
    outer.write("site/a/b.txt", "inside");
    let server = Server::start(&outer.path.join("site"), &[]);
    let attempts = [
        "/../secret.txt",
        "/a/../../secret.txt",
        "/a/../b.txt",
        "/..%2fsecret.txt",
        "/%2e%2e/secret.txt",
        "/%2E%2E/secret.txt",
        "/.%2e/secret.txt",
        "/%2e./secret.txt",
        "/%2e%2e%2fsecret.txt",
        "/a/%2e%2e/%2e%2e/secret.txt",
        "/%252e%252e/secret.txt",
        "/..;/secret.txt",
        "/..\\secret.txt",
        "/..%5csecret.txt",
        "/..%00/secret.txt",
        "/a/b.txt%00.html",
        "//../secret.txt",
        "//etc/passwd",
        "/%2fetc/passwd",
        "/./../secret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/%uff0e%uff0e/secret.txt",
        "/..",
        "/../",
        "/../site/index.html",
    ];
    let mut client = server.connect();
    for path in attempts {
        let response = client.get(path);
        assert!([400, 404].contains(&response.status), "{path}: {}", response.status);
        assert!(!response.text().contains("secret\n") && response.text() != "secret", "{path}");
    }
    let full = "http://test/../secret.txt";
    assert_eq!(client.get(full).status, 400);
    assert_eq!(client.get("http://test/a/b.txt").text(), "inside");
    assert_eq!(client.get("/%61/%62.txt").text(), "inside");
}

#[test]
fn names_may_be_unusual() {
    let site = Site::new();
    site.write("with space.txt", "1");
    site.write("umlaut-ü.txt", "2");
    site.write("a..hidden..txt", "3");
    site.write("100%.txt", "4");
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    for (path, body) in
        [("/with%20space.txt", "1"), ("/umlaut-%C3%BC.txt", "2"), ("/a..hidden..txt", "3"), ("/100%25.txt", "4")]
    {
        assert_eq!(client.get(path).text(), body, "{path}");
    }
    assert_eq!(client.get(&format!("/{}", "x".repeat(5_000))).status, 404);
}

#[test]
fn links_out_are_refused_unless_followed() {
    let outer = Site::new();
    outer.write("outside/secret.txt", "secret");
    outer.write("site/index.html", "start");
    outer.write("site/inner/page.txt", "inside");
    let path = outer.path.join("site");
    symlink("../outside/secret.txt", path.join("file-out")).unwrap();
    symlink(outer.path.join("outside/secret.txt"), path.join("file-out-absolute")).unwrap();
    symlink("../outside", path.join("dir-out")).unwrap();
    symlink("/proc/self/environ", path.join("proc-out")).unwrap();
    symlink("inner/page.txt", path.join("file-in")).unwrap();
    symlink(path.join("inner"), path.join("dir-in-absolute")).unwrap();
    symlink("loop", path.join("loop")).unwrap();

    let server = Server::start(&path, &[]);
    let mut client = server.connect();
    for out in ["/file-out", "/file-out-absolute", "/dir-out/secret.txt", "/dir-out", "/dir-out/", "/proc-out", "/loop"]
    {
        assert_eq!(client.get(out).status, 404, "{out}");
    }
    assert_eq!(client.get("/file-in").text(), "inside");
    assert_eq!(client.get("/dir-in-absolute/page.txt").text(), "inside");

    let server = Server::start(&path, &["--follow"]);
    let mut client = server.connect();
    for out in ["/file-out", "/file-out-absolute", "/dir-out/secret.txt"] {
        assert_eq!(client.get(out).text(), "secret", "{out}");
    }
    assert_eq!(client.get("/loop").status, 404);
    assert_eq!(client.get("/../outside/secret.txt").status, 400);
}

#[test]
fn a_page_replaced_by_a_link_out_is_not_followed() {
    let outer = Site::new();
    outer.write("secret.txt", "secret");
    outer.write("site/page.txt", "page");
    let page = outer.path.join("site/page.txt");
    let server = Server::start(&outer.path.join("site"), &[]);
    assert_eq!(server.get("/page.txt").text(), "page");
    std::fs::remove_file(&page).unwrap();
    symlink("../secret.txt", &page).unwrap();
    assert!(shows_within_a_second(|| server.get("/page.txt").status == 404));
}

#[test]
fn pipes_and_devices_are_never_opened() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let site = Site::with_index();
    mknodat(CWD, site.path.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.path.join("socket")).unwrap();
    symlink("/dev/zero", site.path.join("zero")).unwrap();
    let server = Server::start(&site.path, &["--follow"]);
    let mut client = server.connect();
    for path in ["/pipe", "/socket", "/zero"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    assert_eq!(client.get("/").status, 200);
}
