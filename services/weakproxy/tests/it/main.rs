//! The program as its users meet it: curl and a browser through the proxy, a registry, and an origin.

mod faults;
mod figures;
mod origin;
mod programs;

use std::process::Command;

use image::ImageFormat;
use origin::{Origin, encoded, jpeg, logo, photo};
use programs::{Program, has};
use tempfile::TempDir;

/// All that a test needs.
struct Scene {
    folder: TempDir,
    origin: Origin,
    registry: Program,
    proxy: Program,
}

impl Scene {
    /// `None` without curl.
    fn new(args: &[&str]) -> Option<Scene> {
        if !has("curl") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (origin, registry) = (Origin::start(), Program::registry(folder.path()));
        let proxy = Program::proxy(folder.path(), &registry, args);
        Some(Scene { folder, origin, registry, proxy })
    }
}

const KEPT: &str = "Cache-Control: max-age=3600";

#[test]
fn pictures_have_the_size_and_the_format_of_the_device() {
    let Some(scene) = Scene::new(&[]) else { return };
    let Scene { origin, registry, proxy, .. } = &scene;
    let photo = photo(640, 480);
    for (name, kind, body) in [
        ("/photo.jpg", "image/jpeg", jpeg(&photo, 90)),
        ("/photo.png", "image/png", encoded(&photo, ImageFormat::Png)),
        ("/photo.webp", "image/webp", encoded(&photo, ImageFormat::WebP)),
        ("/photo.gif", "image/gif", encoded(&photo.thumbnail(400, 300), ImageFormat::Gif)),
        ("/logo.png", "image/png", encoded(&logo(640, 480), ImageFormat::Png)),
    ] {
        let len = body.len();
        origin.set(name, &[&format!("Content-Type: {kind}"), "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT"], body);
        let reply = proxy.get("phone", &[], &origin.url(name));
        assert_eq!((reply.status, reply.size()), (200, (320, 240)), "{name}: {}", reply.field("fit"));
        let is_clear = name == "/logo.png";
        assert_eq!(reply.field("content-type"), if is_clear { "image/png" } else { "image/jpeg" }, "{name}");
        assert_eq!(reply.field("fit"), format!("scaled; from={len}"), "{name}");
        assert!(reply.body.len() < len && reply.field("last-modified").is_empty(), "{name}: {reply:?}");
        // The preferences of a user at a device go before its profile.
        assert_eq!(proxy.get("ann/phone", &[], &origin.url(name)).size(), (100, 75), "{name}");
    }
    let gray = image::load_from_memory(&proxy.get("pager", &[], &origin.url("/photo.jpg")).body).unwrap();
    assert!(!gray.color().has_color() && (gray.width(), gray.height()) == (64, 48), "{gray:?}");
    registry.put("devices/old", r#"{"formats": ["image/gif"], "width": 50}"#);
    let old = proxy.get("old", &[], &origin.url("/logo.png"));
    assert_eq!((old.field("content-type"), old.size().0), ("image/gif", 50));
    // A picture that the device can show, and that would only grow, stays.
    let small = encoded(&logo(20, 20), ImageFormat::Png);
    origin.set("/small.png", &["Content-Type: image/png"], small.clone());
    let reply = proxy.get("phone", &[], &origin.url("/small.png"));
    assert!(reply.field("fit").starts_with("unchanged") && reply.body == small, "{reply:?}");
}

#[test]
fn pages_have_what_the_device_uses() {
    let Some(scene) = Scene::new(&[]) else { return };
    let Scene { origin, proxy, .. } = &scene;
    let page =
        "<!doctype html><title>T</title><style>b{}</style><script>x</script><!-- c --><p onclick=x>P<iframe></iframe>";
    origin.set("/", &["Content-Type: text/html; charset=utf-8"], page);
    let reply = proxy.get("phone", &[], &origin.url("/"));
    assert_eq!(reply.text(), "<!doctype html><title>T</title><style>b{}</style><p>P");
    assert_eq!(reply.field("fit"), format!("stripped; from={}", page.len()));
    assert_eq!(
        proxy.get("pager", &[], &origin.url("/")).text(),
        "<!doctype html><title>T</title><p>P<iframe></iframe>"
    );
    // curl asks for the coding, and gets none; the origin is asked for it by the proxy.
    assert_eq!(proxy.get("pager", &["--compressed"], &origin.url("/")).status, 200);
    let asked = &origin.requests("/")[0].to_ascii_lowercase();
    assert!(asked.contains("accept-encoding: ") && asked.contains("via: 1.1 weakproxy-"), "{asked}");
    assert!(!asked.contains("\nproxy-"), "the name of the device is for the proxy only: {asked}");
    // Others are passed on with all that they are.
    origin.set("/a.css", &["Content-Type: text/css", "ETag: \"a\"", "X: y", "Connection: X"], "/* */");
    let css = proxy.get("phone", &[], &origin.url("/a.css"));
    assert_eq!((css.text(), css.field("etag"), css.field("x"), css.field("fit")), ("/* */", "\"a\"", "", ""));
}

#[test]
fn what_was_made_is_kept_as_long_as_the_origin_allows() {
    let Some(Scene { folder, origin, registry, proxy }) = Scene::new(&[]) else { return };
    let image = jpeg(&photo(640, 480), 90);
    let url = origin.url("/a.jpg");
    origin.set("/a.jpg", &["Content-Type: image/jpeg", KEPT, "ETag: \"1\""], image.clone());
    let first = proxy.get("phone", &[], &url);
    assert_eq!(first.field("cache-status"), "weakproxy; fwd=miss; stored");
    let second = proxy.get("phone", &[], &url);
    assert_eq!((second.field("cache-status"), &second.body), ("weakproxy; hit", &first.body));
    assert_eq!((second.field("etag"), second.field("fit")), (first.field("etag"), first.field("fit")));
    assert!(!second.field("age").is_empty());
    let known = ["-H", &format!("If-None-Match: {}", first.field("etag"))];
    assert_eq!(proxy.get("phone", &known, &url).status, 304);
    assert_eq!(origin.requests("/a.jpg").len(), 1);
    // Another device gets its own.
    assert_eq!(proxy.get("ann/phone", &known, &url).size(), (100, 75));
    assert_eq!(proxy.get("ann/phone", &["-H", "Cache-Control: only-if-cached"], &url).size(), (100, 75));
    assert_eq!(proxy.get("pager", &["-H", "Cache-Control: only-if-cached"], &url).status, 504);
    assert_eq!(origin.requests("/a.jpg").len(), 2);
    // It outlives a kill of the process, and asks the origin when the client wants that.
    proxy.end();
    let proxy = Program::proxy(folder.path(), &registry, &[]);
    assert_eq!(proxy.get("phone", &[], &url).field("cache-status"), "weakproxy; hit");
    let checked = proxy.get("phone", &["-H", "Cache-Control: no-cache"], &url);
    assert_eq!(
        (checked.field("cache-status"), &checked.body),
        ("weakproxy; hit; fwd=stale; fwd-status=304", &first.body)
    );
    let asked = origin.requests("/a.jpg").pop().unwrap().to_ascii_lowercase();
    assert!(asked.contains("if-none-match: \"1\""), "{asked}");
    // A new picture is another one for all devices.
    origin.set("/a.jpg", &["Content-Type: image/jpeg", KEPT, "ETag: \"2\""], jpeg(&photo(400, 400), 90));
    let new = proxy.get("phone", &[&known[..], &["-H", "Cache-Control: no-cache"]].concat(), &url);
    assert_eq!((new.status, new.size()), (200, (240, 240)));
    assert_eq!(proxy.get("ann/phone", &[], &url).size(), (100, 100));
    // A change by a client is seen at once.
    origin.set("/a.jpg", &["HTTP/1.1 204 No Content"], "");
    assert_eq!(proxy.get("phone", &["-d", "change"], &url).status, 204);
    assert!(origin.requests("/a.jpg").pop().unwrap().ends_with("\r\n\r\nchange"));
    assert_eq!(proxy.get("phone", &["-H", "Cache-Control: only-if-cached"], &url).status, 504);
}

#[test]
fn answers_for_one_client_are_not_kept() {
    let Some(scene) = Scene::new(&[]) else { return };
    let Scene { origin, proxy, .. } = &scene;
    let image = jpeg(&photo(400, 300), 90);
    let twice = |path: &str, fields: &[&str], args: &[&str]| {
        origin.set(path, &[&["Content-Type: image/jpeg"], fields].concat(), image.clone());
        for _ in 0..2 {
            let reply = proxy.get("phone", args, &origin.url(path));
            assert_eq!((reply.size(), reply.field("cache-status")), ((320, 240), "weakproxy; fwd=miss"), "{path}");
        }
        assert_eq!(origin.requests(path).len(), 2, "{path}");
    };
    twice("/no-store", &["Cache-Control: no-store"], &[]);
    twice("/private", &["Cache-Control: private, max-age=60"], &[]);
    twice("/login", &["Cache-Control: public, max-age=60"], &["-H", "Authorization: Basic eDp5"]);
    twice("/cookie", &[KEPT, "Set-Cookie: a=b"], &[]);
    twice("/varies", &[KEPT, "Vary: Cookie"], &[]);
    twice("/unsaid", &[], &[]);
    twice("/guess", &["ETag: \"1\""], &["-H", "Cookie: a=b"]);
    // The answer for all is not for a client with a login of its own.
    origin.set("/all", &["Content-Type: image/jpeg", "Cache-Control: public, max-age=60"], image.clone());
    proxy.get("phone", &[], &origin.url("/all"));
    proxy.get("phone", &["-H", "Authorization: Basic eDp5"], &origin.url("/all"));
    assert_eq!(origin.requests("/all").len(), 2);
}

#[test]
fn a_browser_shows_a_fitted_page() {
    let Some(scene) = Scene::new(&["--device", "browser"]) else { return };
    let Scene { folder, origin, proxy, .. } = &scene;
    if !has("chromium") {
        return;
    }
    let page = "<!doctype html><title>T</title><!-- gone --><iframe src=/frame></iframe><img src=/a.jpg>\
        <script>onload = () => document.title = `${document.images[0].naturalWidth} ${document.images[1].naturalWidth}`</script><img src=/b.png>";
    origin.set("/page", &["Content-Type: text/html"], page);
    origin.set("/a.jpg", &["Content-Type: image/jpeg", KEPT], jpeg(&photo(800, 600), 90));
    origin.set("/b.png", &["Content-Type: image/png", KEPT], encoded(&logo(800, 200), ImageFormat::Png));
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--proxy-bypass-list=<-loopback>", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}/browser", folder.path().display()));
    let output = browser.arg(format!("--proxy-server={}", proxy.base)).arg(origin.url("/page")).output().unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    assert!(dom.contains("<title>320 320</title>"), "{dom} {}", String::from_utf8_lossy(&output.stderr));
    assert!(!dom.contains("gone") && !dom.contains("iframe"), "{dom}");
    assert_eq!(origin.requests("/frame").len(), 0);
}
