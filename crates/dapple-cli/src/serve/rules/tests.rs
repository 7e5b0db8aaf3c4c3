use http::HeaderMap;

use super::Rules;

fn rules(text: &str) -> Rules {
    toml::from_str(text).unwrap()
}

#[test]
fn redirects_keep_the_text_of_the_star() {
    let rules = rules(
        r#"
        [[redirect]]
        from = "/old/*"
        to = "/new/*"
        status = 301

        [[redirect]]
        from = "/blog"
        to = "https://example.org/"

        [[redirect]]
        from = "/old/late"
        to = "/never"
        "#,
    );
    let to = |key: &[u8]| rules.redirect(key).map(|(status, to)| (status.as_u16(), to));
    assert_eq!(to(b"old/a/b c?"), Some((301, "/new/a/b%20c%3F".to_owned())));
    assert_eq!(to("old/\u{fc}".as_bytes()), Some((301, "/new/%C3%BC".to_owned())));
    assert_eq!(to(b"old/\r\nx"), Some((301, "/new/%0D%0Ax".to_owned())));
    assert_eq!(to(b"blog"), Some((302, "https://example.org/".to_owned())));
    assert_eq!(to(b"old/late"), Some((301, "/new/late".to_owned())), "the first matching one");
    assert_eq!(to(b"older"), None);
}

#[test]
fn headers_are_set_and_removed_in_order() {
    let rules = rules(
        r#"
        [[header]]
        path = "*"
        set = { x-one = "1", cache-control = "no-store" }

        [[header]]
        path = "/assets/*"
        set = { cache-control = "max-age=31536000, immutable" }
        remove = ["x-one", "etag"]
        "#,
    );
    let labeled = |key: &[u8]| {
        let mut headers = HeaderMap::new();
        headers.insert("etag", "\"a\"".parse().unwrap());
        rules.label(key, &mut headers);
        let value = |name| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        (value("x-one"), value("cache-control"), value("etag"))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(labeled(b"page"), (some("1"), some("no-store"), some("\"a\"")));
    assert_eq!(labeled(b"assets/a.js"), (None, some("max-age=31536000, immutable"), None));
}

#[test]
fn pages_for_errors() {
    let rules = rules("[error_pages]\n404 = \"404.html\"\n500 = \"/errors/oops.html\"");
    assert_eq!(rules.error_page(http::StatusCode::NOT_FOUND), Some("404.html"));
    assert_eq!(rules.error_page(http::StatusCode::INTERNAL_SERVER_ERROR), Some("errors/oops.html"));
    assert_eq!(rules.error_page(http::StatusCode::BAD_REQUEST), None);
}

#[test]
fn mistakes_state_their_place_and_what_to_write() {
    for (text, expected) in [
        ("[[redirect]]\nfrom = \"old\"\nto = \"/new\"", "write \"/old\""),
        ("[[redirect]]\nfrom = \"/*/*\"\nto = \"/new\"", "leave one"),
        ("[[redirect]]\nfrom = \"/a\"\nto = \"/*\"", "has no *"),
        ("[[redirect]]\nfrom = \"/a*\"\nto = \"/*/*\"", "more than one *"),
        ("[[redirect]]\nfrom = \"/a\"\nto = \"new\"", "write a path such as"),
        ("[[redirect]]\nfrom = \"/a\"\nto = \"//evil.example\"", "write a path such as"),
        ("[[redirect]]\nfrom = \"/a\"\nto = \"/b\\r\\nx: y\"", "write a path such as"),
        ("[[redirect]]\nfrom = \"/a\"\nto = \"/a\"", "leads to itself"),
        ("[[redirect]]\nfrom = \"/a\"\nto = \"/b\"\nstatus = 200", "write 301, 302"),
        ("[[redirect]]\nfrom = \"/a\"\nto = \"/b\"\ncode = 301", "unknown field `code`"),
        ("[[redirect]]\nfrom = \"/a\"", "missing field `to`"),
        ("[[header]]\npath = \"/a\"", "changes nothing"),
        ("[[header]]\npath = \"a\"\nremove = [\"etag\"]", "write \"/a\""),
        ("[[header]]\npath = \"/a\"\nset = { \"no name\" = \"x\" }", "not the name of a header field"),
        ("[[header]]\npath = \"/a\"\nset = { x = \"a\\nb\" }", "leave out line breaks"),
        ("[[header]]\npath = \"/a\"\nset = { content-length = \"1\" }", "only the server sets"),
        ("[[header]]\npath = \"/a\"\nremove = [\"Transfer-Encoding\"]", "only the server sets"),
        ("[error_pages]\n200 = \"x.html\"", "\"400\" to \"599\""),
        ("[error_pages]\nnone = \"x.html\"", "\"400\" to \"599\""),
        ("[error_pages]\n404 = \"../x.html\"", "from there"),
        ("[error_pages]\n404 = \"\"", "from there"),
        ("[redirects]\n", "unknown field `redirects`"),
    ] {
        let error = toml::from_str::<Rules>(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}\n{error}");
        assert!(error.contains("line "), "{error}");
    }
}
