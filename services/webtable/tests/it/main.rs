//! The programs as their users meet them: their command lines, and curl.

mod faults;
mod programs;

use std::thread;

use programs::{AUTHORIZATION, Program, has_curl, run, token_file, url};

#[test]
fn files_are_served_under_conditions_and_in_parts() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let table = Program::table(&folder.path().join("store"), "127.0.0.1:0");
    let [one, two] = [0; 2].map(|_| Program::front(folder.path(), &[&table]));
    assert_eq!(one.curl("/", &[]).status, 404);
    let file = folder.path().join("index.html");
    std::fs::write(&file, "<h1>One</h1>\n").unwrap();
    let upload = ["--upload-file", file.to_str().unwrap(), "--header", AUTHORIZATION];
    let put = one.curl("/", &upload);
    assert_eq!(put.status, 201, "{put:?}");

    // Any front end has it at once.
    let first = two.curl("/", &[]);
    assert_eq!((first.status, first.body.as_str()), (200, "<h1>One</h1>\n"));
    assert_eq!((first.field("etag"), first.field("content-type")), (put.field("etag"), "text/html; charset=utf-8"));
    let known = format!("If-None-Match: {}", first.field("etag"));
    let not_modified = one.curl("/index.html", &["--header", &known]);
    assert_eq!((not_modified.status, not_modified.field("etag")), (304, first.field("etag")));
    let since = format!("If-Modified-Since: {}", first.field("last-modified"));
    assert_eq!(one.curl("/", &["--header", &since]).status, 304);
    let head = two.curl("/", &["--head"]);
    assert_eq!((head.status, head.field("content-length"), head.body.as_str()), (200, "13", ""));

    std::fs::write(&file, "<h1>Two</h1>\n").unwrap();
    assert_eq!(two.curl("/", &upload).status, 204);
    let second = one.curl("/", &["--header", &known]);
    assert_eq!((second.status, second.body.as_str()), (200, "<h1>Two</h1>\n"));
    let old = format!("If-Match: {}", first.field("etag"));
    for condition in [&old, "If-None-Match: *"] {
        assert_eq!(two.curl("/", &[&upload[..], &["--header", condition]].concat()).status, 412);
    }
    let remove = ["--request", "DELETE", "--header", AUTHORIZATION];
    assert_eq!(two.curl("/index.html", &[&remove[..], &["--header", &old]].concat()).status, 412);

    let part = two.curl("/", &["--range", "4-6"]);
    let about = (part.status, part.body.as_str(), part.field("content-range"));
    assert_eq!(about, (206, "Two", "bytes 4-6/13"));
    let outside = two.curl("/", &["--range", "99-"]);
    assert_eq!((outside.status, outside.field("content-range")), (416, "bytes */13"));
    let stale = ["--range", "4-6", "--header", &format!("If-Range: {}", first.field("etag"))];
    assert_eq!(two.curl("/", &stale).status, 200);

    assert_eq!(one.curl("/index.html", &remove).status, 204);
    assert_eq!([two.curl("/", &[]).status, two.curl("/index.html", &remove).status], [404, 404]);
    // A file that comes back does not get an old tag.
    std::fs::write(&file, "<h1>One</h1>\n").unwrap();
    assert_eq!(two.curl("/", &[&upload[..], &["--header", "If-None-Match: *"]].concat()).status, 201);
    assert_ne!(one.curl("/", &[]).field("etag"), first.field("etag"));
}

#[test]
fn only_clients_with_the_token_change_files_of_a_bearable_size() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let table = Program::table(&folder.path().join("store"), "127.0.0.1:0");
    let front = Program::front(folder.path(), &[&table]);
    for header in ["X: y", "Authorization: Bearer 0123456789abcdeX", "Authorization: Basic 0123456789abcdef"] {
        for method in ["PUT", "DELETE"] {
            let refused = front.curl("/a", &["--request", method, "--header", header, "--data", "text"]);
            assert_eq!((refused.status, refused.field("www-authenticate")), (401, "Bearer"), "{header}");
        }
        assert_eq!(front.curl("/run/counter/a", &["--request", "PUT", "--header", header]).status, 401);
    }
    let read_only = Program::start(&["front", "--listen", "127.0.0.1:0", "--tables", &table.address]);
    assert_eq!(read_only.put("/a", "text"), 403);
    assert_eq!([read_only.curl("/a", &[]).status, read_only.curl("/run/counter/a", &[]).status], [404, 404]);

    let large = folder.path().join("large");
    std::fs::write(&large, vec![b'a'; 4 << 20]).unwrap();
    let at = format!("@{}", large.display());
    assert_eq!(front.put("/large", &at), 201);
    let read = front.curl("/large", &[]);
    assert_eq!((read.status, read.body.len(), read.field("content-type")), (200, 4 << 20, "application/octet-stream"));
    std::fs::write(&large, vec![b'a'; (4 << 20) + 1]).unwrap();
    assert_eq!(front.put("/large", &at), 413);
    let chunked = ["--request", "PUT", "--header", AUTHORIZATION, "--header", "Transfer-Encoding: chunked"];
    assert_eq!(front.curl("/large", &[&chunked[..], &["--data-binary", &at]].concat()).status, 413);
    assert_eq!([front.put("/a%00b", "text"), front.put("/a/", "text")], [422, 422]);
    // A part of a file would replace the whole, and readers would not know of a coding.
    for field in ["Content-Range: bytes 1-2/9", "Content-Encoding: gzip"] {
        let args = ["--request", "PUT", "--header", AUTHORIZATION, "--header", field, "--data", "text"];
        assert_eq!(front.curl("/b", &args).status, 422, "{field}");
    }
    assert_eq!(front.curl("/b", &[]).status, 404);
    let long = format!("/{}", "a".repeat(6000));
    assert_eq!([front.put(&long, "text"), front.curl("/a", &["--request", "TRACE"]).status], [422, 405]);
}

#[test]
fn the_token_is_checked_before_the_body_is_read() {
    // No table is asked.
    let front = Program::start(&["front", "--listen", "127.0.0.1:0", "--tables", "127.0.0.1:1"]);
    let folder = tempfile::tempdir().unwrap();
    let token = token_file(folder.path());
    let options = ["--tables", "127.0.0.1:1", "--token-file", token.to_str().unwrap()];
    let with_token = Program::start(&[&["front", "--listen", "127.0.0.1:0"], &options[..]].concat());
    for (front, path, status) in [(&front, "/a", 403), (&with_token, "/a", 401), (&with_token, "/run/counter/a", 401)] {
        let head = format!("PUT {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 16000\r\n\r\n");
        assert_eq!(front.status_of_head(&head), status, "{path}");
    }
}

#[test]
fn uploads_have_limited_room() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let table = Program::table(&folder.path().join("store"), "127.0.0.1:0");
    let front = Program::front(folder.path(), &[&table]);
    let head = |fields: &str| {
        format!("PUT /a HTTP/1.1\r\nhost: x\r\n{AUTHORIZATION}\r\nexpect: 100-continue\r\n{fields}\r\n\r\n")
    };
    // Each is asked for its body, and sends nothing. Any body may be as long as the longest.
    let slow: Vec<_> = (0..64)
        .map(|number| front.reply_to_head(&head(["content-length: 4194304", "transfer-encoding: chunked"][number % 2])))
        .collect();
    assert!(slow.iter().all(|(status, _)| *status == 100), "{slow:?}");
    assert_eq!(front.status_of_head(&head("content-length: 1")), 503);
    assert_eq!([front.curl("/a", &[]).status, front.curl("/health", &[]).status], [404, 200]);
    drop(slow);
    assert_eq!(front.put("/a", "text"), 201);
}

#[test]
fn a_front_end_is_healthy_without_a_table() {
    let front = Program::start(&["front", "--listen", "127.0.0.1:0", "--tables", "127.0.0.1:1"]);
    assert_eq!(front.status_of_head("GET /health HTTP/1.1\r\nhost: x\r\n\r\n"), 200);
}

#[test]
fn handlers_keep_their_state_in_rows() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let table = Program::table(&folder.path().join("store"), "127.0.0.1:0");
    let fronts = [0; 2].map(|_| Program::front(folder.path(), &[&table]));
    let [one, two] = &fronts;
    assert_eq!(one.curl("/run/counter/visits", &["--data", ""]).status, 404);
    assert_eq!([one.put("/run/counter/visits", ""), two.put("/run/counter/visits", "")], [201, 204]);
    // No visit of concurrent clients is lost.
    thread::scope(|scope| {
        for front in fronts.iter().cycle().take(4) {
            scope.spawn(|| {
                (0..10).for_each(|_| assert_eq!(front.curl("/run/counter/visits", &["--data", ""]).status, 200))
            });
        }
    });
    assert_eq!(one.curl("/run/counter/visits", &[]).body, "40\n");

    assert_eq!(one.put("/run/guestbook/book", ""), 201);
    let sign = |name: &str, text: &str| {
        let (name, text) = (format!("name={name}"), format!("text={text}"));
        two.curl("/run/guestbook/book", &["--data-urlencode", &name, "--data-urlencode", &text])
    };
    let signed = sign("Ann", "<script>alert(1)</script>");
    assert_eq!((signed.status, signed.field("location")), (303, "/run/guestbook/book"));
    assert_eq!(sign("Ben\nX", "ünd & so").status, 303);
    let page = one.curl("/run/guestbook/book", &[]);
    let entries =
        "<ul><li><b>Ben X</b>: ünd &amp; so</li><li><b>Ann</b>: &lt;script&gt;alert(1)&lt;/script&gt;</li></ul>";
    assert!(page.status == 200 && page.body.contains(entries), "{page:?}");
    assert!(page.field("content-security-policy").starts_with("default-src 'none'"));
    assert_eq!([sign("Ann", &"a".repeat(2001)).status, sign("Ann", &"a".repeat(30_000)).status], [422, 413]);
    assert_eq!(one.curl("/run/guestbook/other", &["--data", "name=a&text=b"]).status, 404);
    assert_eq!(one.curl("/run/guestbook/a%2Fb", &["--data", "name=a&text=b"]).status, 404);
    assert_eq!(one.curl("/run/shell/book", &[]).status, 400);
    // Old entries make room.
    (0..101).for_each(|number| assert_eq!(sign("Eve", &format!("{number}.")).status, 303));
    let page = one.curl("/run/guestbook/book", &[]).body;
    assert_eq!(page.matches("<li>").count(), 100);
    assert!(page.contains(": 100.</li>") && page.contains(": 1.</li>") && !page.contains(": 0.</li>"));
}

#[test]
fn parts_on_two_hosts_are_one_table() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let stores = ["one", "two"].map(|name| url(&folder.path().join(name)));
    let tables = stores.map(|store| Program::start(&["table", "--store", &store, "--listen", "127.0.0.1:0"]));
    let front = Program::front(folder.path(), &[&tables[0], &tables[1]]);
    (0..20).for_each(|number| assert_eq!(front.put(&format!("/{number}"), &format!("file {number}")), 201));
    assert_eq!(front.put("/run/counter/visits", ""), 201);
    assert_eq!(front.curl("/run/counter/visits", &["--data", ""]).body, "1\n");
    // The order of the hosts has no effect.
    let other = Program::front(folder.path(), &[&tables[1], &tables[0]]);
    (0..20).for_each(|number| assert_eq!(other.curl(&format!("/{number}"), &[]).body, format!("file {number}")));
    let [first, _second] = tables;
    drop(first);
    // The other half is served on.
    let statuses: Vec<u16> = (0..20).map(|number| front.curl_once(&format!("/{number}"), &[]).status).collect();
    assert!(statuses.contains(&200) && statuses.contains(&503), "{statuses:?}");
}

#[test]
fn wrong_options_are_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let store = url(&folder.path().join("store"));
    let failure = |args: &[&str]| {
        let output = run(args);
        assert!(!output.status.success() && !folder.path().join("store").exists(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(failure(&[]).contains("Usage: webtable <COMMAND>"));
    assert!(failure(&["front"]).contains("--tables <HOST:PORT,...>"));
    assert!(failure(&["front", "--tables", "127.0.0.1:1", "--limit-ms", "0"]).contains("0 is not in 10..=60000"));
    assert!(failure(&["front", "--tables", "no port"]).contains("no port"));
    let front = ["front", "--tables", "127.0.0.1:1", "--token-file"];
    assert!(failure(&[&front[..], &["/no/file"]].concat()).contains("cannot read /no/file"));
    let token = token_file(folder.path());
    std::fs::write(&token, "short\n").unwrap();
    assert!(failure(&[&front[..], &[token.to_str().unwrap()]].concat()).contains("less than 16 letters"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    assert!(failure(&["front", "--tables", "127.0.0.1:1", "--listen", &taken]).contains("choose another address"));
    assert!(failure(&["table", "--store", &store, "--listen", &taken]).contains("choose another address"));
    assert!(failure(&["table", "--store", "postgres:x"]).contains("redb:DIR"));
}
