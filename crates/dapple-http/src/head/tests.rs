//! Tables of accepted and refused heads, with reasons.

use std::mem::MaybeUninit;

use http::Version;
use proptest::prelude::*;

use super::{Framing, HeadLimits, HeadScan, parse};
use crate::refusal::Refusal;
use crate::request::Form;

/// The parts of a head that matter to the tests, without its lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Taken {
    method: String,
    version: Version,
    form: Form,
    authority: Option<String>,
    path: String,
    query: Option<String>,
    fields: Vec<(String, Vec<u8>)>,
    framing: Framing,
    keep_alive: bool,
    expects_continue: bool,
    end: usize,
}

/// Gives `input` to a scan up to each of `cuts` and then to its end, and parses the head found.
/// `None` if there is no end.
fn read_in_pieces(input: &[u8], cuts: &[usize]) -> Result<Option<Taken>, Refusal> {
    let limits = HeadLimits::default();
    let mut scan = HeadScan::new();
    for end in cuts.iter().copied().chain([input.len()]) {
        if let Some(found) = scan.find(&input[..end], &limits)? {
            let mut storage = vec![MaybeUninit::uninit(); found.fields];
            let head = parse(&input[found.start..found.end], &mut storage, &limits)?;
            let request = head.request;
            let fields = request.fields.iter().map(|field| (field.name.to_owned(), field.value.to_vec()));
            return Ok(Some(Taken {
                method: request.method.to_string(),
                version: request.version,
                form: request.form,
                authority: request.authority.map(str::to_owned),
                path: request.path.to_owned(),
                query: request.query.map(str::to_owned),
                fields: fields.collect(),
                framing: head.framing,
                keep_alive: head.keep_alive,
                expects_continue: head.expects_continue,
                end: found.end,
            }));
        }
    }
    Ok(None)
}

fn read(input: impl AsRef<[u8]>) -> Result<Option<Taken>, Refusal> {
    read_in_pieces(input.as_ref(), &[])
}

fn taken(input: &str) -> Taken {
    match read(input) {
        Ok(Some(taken)) => taken,
        other => panic!("{input:?} is refused: {other:?}"),
    }
}

fn refused(cases: &[(&str, Refusal)]) {
    for (input, refusal) in cases {
        assert_eq!(read(input), Err(*refusal), "{input:?}");
    }
}

/// A request of HTTP/1.1 with these lines.
fn with(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

#[test]
fn a_request_is_what_it_says() {
    let taken =
        taken("GET /a/b?c=d?e HTTP/1.1\r\nHost: example.com:80\r\nX-Thing:  \t two  words \t\r\nEmpty:\r\n\r\nrest");
    assert_eq!((taken.method.as_str(), taken.version, taken.form), ("GET", Version::HTTP_11, Form::Origin));
    assert_eq!((taken.path.as_str(), taken.query.as_deref()), ("/a/b", Some("c=d?e")));
    assert_eq!(taken.authority.as_deref(), Some("example.com:80"));
    assert_eq!(taken.fields[1], ("X-Thing".to_owned(), b"two  words".to_vec()));
    assert_eq!(taken.fields[2], ("Empty".to_owned(), b"".to_vec()));
    assert_eq!((taken.framing, taken.keep_alive, taken.expects_continue), (Framing::None, true, false));
    assert_eq!(
        taken.end,
        "GET /a/b?c=d?e HTTP/1.1\r\nHost: example.com:80\r\nX-Thing:  \t two  words \t\r\nEmpty:\r\n\r\n".len()
    );
}

#[test]
fn lines_end_with_both() {
    refused(&[
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", Refusal::BareLineFeed),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", Refusal::BareLineFeed),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", Refusal::BareLineFeed),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::BareLineFeed),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\nTransfer-Encoding: chunked\r\n\r\n", Refusal::BareLineFeed),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n", Refusal::BareCarriageReturn),
        ("GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", Refusal::BareCarriageReturn),
        ("GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::BareCarriageReturn),
        ("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::BareCarriageReturn),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\r\n\r\n", Refusal::BareCarriageReturn),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\r\n\r\n", Refusal::BareCarriageReturn),
    ]);
}

#[test]
fn empty_lines_in_front_are_few() {
    for count in 0..=4 {
        let input = format!("{}GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\r\n".repeat(count));
        assert_eq!(taken(&input).end, input.len());
    }
    refused(&[("\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::EmptyLines)]);
}

#[test]
fn request_lines_have_one_form() {
    let line = |line: &str| format!("{line}\r\nHost: a\r\n\r\n");
    for (first, refusal) in [
        ("GET", Refusal::RequestLine),
        ("GET /", Refusal::RequestLine),
        ("GET  / HTTP/1.1", Refusal::RequestLine),
        ("GET /  HTTP/1.1", Refusal::RequestLine),
        ("GET / HTTP/1.1 ", Refusal::RequestLine),
        ("GET /a b HTTP/1.1", Refusal::RequestLine),
        ("GET / http/1.1", Refusal::RequestLine),
        ("GET / HTTP/1,1", Refusal::RequestLine),
        ("GET / HTTP/01.1", Refusal::RequestLine),
        ("GET / HTTP/1.10", Refusal::RequestLine),
        ("GET / HTTP/1", Refusal::RequestLine),
        ("GET / HTTPS/1.1", Refusal::RequestLine),
        (" GET / HTTP/1.1", Refusal::RequestLine),
        ("\tGET / HTTP/1.1", Refusal::RequestLine),
        ("GET / HTTP/2.0", Refusal::Version),
        ("GET / HTTP/1.2", Refusal::Version),
        ("GET / HTTP/0.9", Refusal::Version),
        ("GET / HTTP/9.9", Refusal::Version),
        ("G(T / HTTP/1.1", Refusal::Method),
        ("GE\u{e9} / HTTP/1.1", Refusal::Method),
        ("GET\t/ HTTP/1.1", Refusal::Method),
        ("\u{16}\u{3}\u{1} / HTTP/1.1", Refusal::Method),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZ / HTTP/1.1", Refusal::MethodTooLong),
        ("GET /a\tb HTTP/1.1", Refusal::Target),
        ("GET /a\u{0}b HTTP/1.1", Refusal::Target),
        ("GET /a\u{7f}b HTTP/1.1", Refusal::Target),
        ("GET /\u{e9} HTTP/1.1", Refusal::Target),
        ("GET /a#b HTTP/1.1", Refusal::Target),
    ] {
        assert_eq!(read(line(first)), Err(refusal), "{first:?}");
    }
    assert_eq!(taken(&line("BREW /pot HTTP/1.1")).method, "BREW");
    assert_eq!(taken(&line("get / HTTP/1.1")).method, "get");
}

#[test]
fn what_cannot_become_a_request_is_refused_at_once() {
    assert_eq!(read("\u{16}\u{3}\u{1}"), Err(Refusal::Method));
    assert_eq!(read(" "), Err(Refusal::RequestLine));
    assert_eq!(read("G".repeat(9_000)), Err(Refusal::TargetTooLong));
    assert_eq!(read(""), Ok(None));
    assert_eq!(read("\r\n"), Ok(None));
    assert_eq!(read("GET / HTTP/1.1\r\nHost: a\r\n"), Ok(None));
}

#[test]
fn targets_have_four_forms() {
    let ask = |method: &str, target: &str| read(format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
    let parts = |method: &str, target: &str| {
        let taken = ask(method, target).unwrap_or_else(|refusal| panic!("{target}: {refusal}")).unwrap();
        (taken.form, taken.authority.unwrap(), taken.path, taken.query)
    };
    let of = |form, authority: &str, path: &str, query: Option<&str>| {
        (form, authority.to_owned(), path.to_owned(), query.map(str::to_owned))
    };
    assert_eq!(parts("GET", "//a?b"), of(Form::Origin, "h", "//a", Some("b")));
    assert_eq!(parts("GET", "/?"), of(Form::Origin, "h", "/", Some("")));
    assert_eq!(parts("GET", "http://x.y:1/a?b"), of(Form::Absolute, "x.y:1", "/a", Some("b")));
    assert_eq!(parts("GET", "HTTPS://x"), of(Form::Absolute, "x", "/", None));
    assert_eq!(parts("GET", "http://x?q"), of(Form::Absolute, "x", "/", Some("q")));
    assert_eq!(parts("GET", "http://[::1]:80/"), of(Form::Absolute, "[::1]:80", "/", None));
    assert_eq!(parts("OPTIONS", "*"), of(Form::Asterisk, "h", "*", None));
    assert_eq!(parts("OPTIONS", "http://x"), of(Form::Absolute, "x", "*", None));
    assert_eq!(parts("CONNECT", "x.y:443"), of(Form::Authority, "x.y:443", "", None));
    for (method, target, refusal) in [
        ("GET", "*", Refusal::Target),
        ("GET", "a", Refusal::Target),
        ("GET", "x.y:443", Refusal::Target),
        ("GET", "?a", Refusal::Target),
        ("GET", "ftp://x/", Refusal::Target),
        ("GET", "file:///etc/passwd", Refusal::Target),
        ("GET", "http:/x", Refusal::Target),
        ("GET", "http://", Refusal::Host),
        ("GET", "http:///a", Refusal::Host),
        ("GET", "http://:80/a", Refusal::Host),
        ("GET", "http://user@x/", Refusal::Host),
        ("GET", "http://x:y/", Refusal::Host),
        ("GET", "http://x:70000/", Refusal::Host),
        ("CONNECT", "/", Refusal::Host),
        ("CONNECT", "x", Refusal::Target),
        ("CONNECT", "x:", Refusal::Target),
        ("CONNECT", ":443", Refusal::Target),
        ("CONNECT", "http://x:443/", Refusal::Host),
        ("OPTIONS", "*?a", Refusal::Target),
    ] {
        assert_eq!(ask(method, target), Err(refusal), "{method} {target}");
    }
}

#[test]
fn there_is_one_host_and_it_is_one() {
    let host = |version: &str, lines: &str| read(format!("GET / HTTP/{version}\r\n{lines}\r\n"));
    for good in
        ["a", "a.b.c:8080", "127.0.0.1", "[::1]", "[2001:db8::1]:443", "a:", "%41", "xn--bcher-kva.example", "a_b", "A"]
    {
        let taken = host("1.1", &format!("Host: {good}\r\n")).unwrap().unwrap();
        assert_eq!(taken.authority.as_deref(), Some(good));
    }
    for (lines, refusal) in [
        ("", Refusal::HostMissing),
        ("Host: a\r\nHost: a\r\n", Refusal::HostTwice),
        ("Host: a\r\nhost: b\r\n", Refusal::HostTwice),
        ("Host:\r\n", Refusal::Host),
        ("Host: :80\r\n", Refusal::Host),
        ("Host: a b\r\n", Refusal::Host),
        ("Host: a,b\r\nHost: c\r\n", Refusal::HostTwice),
        ("Host: a/b\r\n", Refusal::Host),
        ("Host: http://a\r\n", Refusal::Host),
        ("Host: u@a\r\n", Refusal::Host),
        ("Host: a:b\r\n", Refusal::Host),
        ("Host: a:1:2\r\n", Refusal::Host),
        ("Host: a:-1\r\n", Refusal::Host),
        ("Host: a:65536\r\n", Refusal::Host),
        ("Host: [::1\r\n", Refusal::Host),
        ("Host: [::g]\r\n", Refusal::Host),
        ("Host: [::1]a\r\n", Refusal::Host),
        ("Host: ::1\r\n", Refusal::Host),
        ("Host: %4\r\n", Refusal::Host),
        ("Host: \u{e9}\r\n", Refusal::Host),
        ("Host: a#\r\n", Refusal::Host),
    ] {
        assert_eq!(host("1.1", lines), Err(refusal), "{lines:?}");
    }
    assert_eq!(host("1.0", "").unwrap().unwrap().authority, None);
    assert_eq!(host("1.0", "Host: a b\r\n"), Err(Refusal::Host));
    // If the target names the host, the field may be empty, and is ignored.
    let named = read("GET http://x/ HTTP/1.1\r\nHost:\r\n\r\n").unwrap().unwrap();
    assert_eq!(named.authority.as_deref(), Some("x"));
    let other = read("GET http://x/ HTTP/1.1\r\nHost: y\r\n\r\n").unwrap().unwrap();
    assert_eq!(other.authority.as_deref(), Some("x"));
    assert_eq!(read("GET http://x/ HTTP/1.1\r\nHost: y z\r\n\r\n"), Err(Refusal::Host));
    assert_eq!(read("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n").unwrap().unwrap().authority, None);
}

#[test]
fn fields_are_names_and_values() {
    for (lines, refusal) in [
        ("X : y\r\n", Refusal::SpaceBeforeColon),
        ("X\t: y\r\n", Refusal::SpaceBeforeColon),
        ("X: y\r\n z\r\n", Refusal::Folded),
        ("X: y\r\n\tz\r\n", Refusal::Folded),
        (": y\r\n", Refusal::FieldName),
        ("X\r\n", Refusal::FieldName),
        ("X y: z\r\n", Refusal::FieldName),
        ("X(y): z\r\n", Refusal::FieldName),
        ("X\u{0}: z\r\n", Refusal::FieldName),
        ("\u{e9}: z\r\n", Refusal::FieldName),
        ("X: y\u{0}\r\n", Refusal::FieldValue),
        ("X: \u{b}\r\n", Refusal::FieldValue),
        ("X: y\u{7f}\r\n", Refusal::FieldValue),
        ("X: y\u{1b}[31m\r\n", Refusal::FieldValue),
    ] {
        assert_eq!(read(with(lines)), Err(refusal), "{lines:?}");
    }
    assert_eq!(read("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), Err(Refusal::Folded));
    assert_eq!(taken(&with("X: caf\u{e9}\t\u{2014}\r\n")).fields[1].1, "caf\u{e9}\t\u{2014}".as_bytes());
}

#[test]
fn the_length_is_told_once() {
    for (lines, refusal) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Refusal::LengthAndCoding),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", Refusal::LengthAndCoding),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Refusal::LengthTwice),
        ("Content-Length: 5\r\ncontent-length: 6\r\n", Refusal::LengthTwice),
        ("Content-Length: 5, 5\r\n", Refusal::LengthTwice),
        ("Content-Length: 5,6\r\n", Refusal::LengthTwice),
        ("Content-Length:\r\n", Refusal::Length),
        ("Content-Length: +5\r\n", Refusal::Length),
        ("Content-Length: -5\r\n", Refusal::Length),
        ("Content-Length: 0x5\r\n", Refusal::Length),
        ("Content-Length: 5 5\r\n", Refusal::Length),
        ("Content-Length: 5.0\r\n", Refusal::Length),
        ("Content-Length: five\r\n", Refusal::Length),
        ("Content-Length: \u{665}\r\n", Refusal::Length),
        ("Content-Length: 18446744073709551616\r\n", Refusal::BodyTooLong),
        ("Transfer-Encoding:\r\n", Refusal::Coding),
        ("Transfer-Encoding: gzip\r\n", Refusal::Coding),
        ("Transfer-Encoding: identity\r\n", Refusal::Coding),
        ("Transfer-Encoding: xchunked\r\n", Refusal::Coding),
        ("Transfer-Encoding: chunked, chunked\r\n", Refusal::Coding),
        ("Transfer-Encoding: chunked, gzip\r\n", Refusal::Coding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Refusal::Coding),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", Refusal::Coding),
        ("Transfer-Encoding: , chunked\r\n", Refusal::Coding),
        ("Transfer-Encoding: \u{b}chunked\r\n", Refusal::FieldValue),
        ("Transfer-Encoding: \"chunked\"\r\n", Refusal::Coding),
        ("Transfer-Encoding: chunked;a=b\r\n", Refusal::Coding),
        ("Transfer-Encoding: gzip, chunked\r\n", Refusal::CodingUnknown),
        ("Transfer-Encoding: br;q=1, chunked\r\n", Refusal::CodingUnknown),
    ] {
        assert_eq!(read(with(lines)), Err(refusal), "{lines:?}");
    }
    assert_eq!(taken(&with("Content-Length: 0\r\n")).framing, Framing::None);
    assert_eq!(taken(&with("Content-Length: 0005\r\n")).framing, Framing::Len(5));
    assert_eq!(taken(&with("content-length: 18446744073709551615\r\n")).framing, Framing::Len(u64::MAX));
    assert_eq!(taken(&with("transfer-encoding: CHUNKED\r\n")).framing, Framing::Chunked);
    assert_eq!(read("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(Refusal::CodingInHttp10));
}

#[test]
fn a_connection_is_kept_as_its_version_says() {
    let keeps = |version: &str, lines: &str| {
        read(format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n")).unwrap().unwrap().keep_alive
    };
    assert!(keeps("1.1", "") && keeps("1.1", "Connection: keep-alive\r\n"));
    assert!(keeps("1.0", "Connection: Keep-Alive\r\n") && keeps("1.0", "Connection: x , keep-alive\r\n"));
    assert!(!keeps("1.0", "") && !keeps("1.1", "Connection: close\r\n") && !keeps("1.1", "Connection: x,CLOSE\r\n"));
    assert!(!keeps("1.1", "Connection: keep-alive\r\nConnection: close\r\n"));
    assert!(!keeps("1.0", "Connection: keep-alive, close\r\n"));
}

#[test]
fn what_is_expected_can_be_met_or_not() {
    let expects = |version: &str, lines: &str| {
        read(format!("PUT / HTTP/{version}\r\nHost: a\r\n{lines}\r\n")).map(|taken| taken.unwrap().expects_continue)
    };
    assert_eq!(expects("1.1", "Expect: 100-continue\r\nContent-Length: 1\r\n"), Ok(true));
    assert_eq!(expects("1.1", "Expect: 100-Continue\r\nTransfer-Encoding: chunked\r\n"), Ok(true));
    assert_eq!(expects("1.1", "Expect: 100-continue\r\n"), Ok(false));
    assert_eq!(expects("1.0", "Expect: 100-continue\r\nContent-Length: 1\r\n"), Ok(false));
    assert_eq!(expects("1.1", "Expect: a miracle\r\n"), Err(Refusal::Expectation));
}

#[test]
fn there_is_an_end_to_everything() {
    let fields = |count: usize| with(&"X: y\r\n".repeat(count - 1));
    assert_eq!(taken(&fields(100)).fields.len(), 100);
    assert_eq!(read(fields(101)), Err(Refusal::TooManyFields));
    let target = |len: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(len - 1));
    assert_eq!(taken(&target(8 << 10)).path.len(), 8 << 10);
    assert_eq!(read(target((8 << 10) + 1)), Err(Refusal::TargetTooLong));
    assert_eq!(read(target(100_000)), Err(Refusal::TargetTooLong));
    let around = with("X: \r\n").len();
    let head = |len: usize| with(&format!("X: {}\r\n", "a".repeat(len - around)));
    assert_eq!(taken(&head(16 << 10)).end, 16 << 10);
    assert_eq!(read(head((16 << 10) + 1)), Err(Refusal::HeadTooLong));
    assert_eq!(read(&head(100_000)[..20_000]), Err(Refusal::HeadTooLong));
}

#[test]
fn each_refusal_has_its_status() {
    for (refusal, status) in [
        (Refusal::BareLineFeed, 400),
        (Refusal::TooSlow, 408),
        (Refusal::BodyTooLong, 413),
        (Refusal::TargetTooLong, 414),
        (Refusal::Expectation, 417),
        (Refusal::HeadTooLong, 431),
        (Refusal::TooManyFields, 431),
        (Refusal::MethodTooLong, 501),
        (Refusal::CodingUnknown, 501),
        (Refusal::Version, 505),
    ] {
        assert_eq!(refusal.status(), status, "{refusal:?}");
    }
}

/// Heads made of bytes that matter to a parser, so that many of them are nearly valid.
fn head() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(&[
        "GET",
        "POST",
        "OPTIONS",
        " ",
        "  ",
        "/",
        "*",
        "/a?b",
        "http://x/",
        "HTTP/1.1",
        "HTTP/1.0",
        "HTTP/2.0",
        "\r\n",
        "\r\n",
        "\r\n",
        "\r",
        "\n",
        "\r\n\r\n",
        "Host",
        ": ",
        ":",
        " :",
        "a",
        "Content-Length",
        "5",
        "+5",
        ",",
        "Transfer-Encoding",
        "chunked",
        "Connection",
        "close",
        "\t",
        "\0",
        "\u{e9}",
        "GET / HTTP/1.1\r\n",
        "Host: a\r\n",
    ]);
    prop::collection::vec(word, 0..24).prop_map(|words| words.concat().into_bytes())
}

proptest! {
    #[test]
    fn it_does_not_matter_in_which_pieces_a_head_comes(
        input in head(),
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut cuts: Vec<usize> = cuts.drain(..).map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(read_in_pieces(&input, &cuts), read(&input));
    }

    #[test]
    fn any_bytes_are_taken_or_refused(input in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&input);
    }

    #[test]
    fn what_is_taken_can_be_written_again(input in head()) {
        if let Ok(Some(taken)) = read(&input) {
            let fields = taken.fields.iter().flat_map(|(name, value)| [name.as_bytes(), b": ", value, b"\r\n"].concat());
            let query = taken.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
            let target = match taken.form {
                Form::Absolute => format!("http://{}{}{query}", taken.authority.as_deref().unwrap(), taken.path),
                _ => format!("{}{query}", taken.path),
            };
            let mut again = format!("{} {target} {:?}\r\n", taken.method, taken.version).into_bytes();
            again.extend(fields);
            again.extend_from_slice(b"\r\n");
            let end = again.len();
            prop_assert_eq!(read(&again), Ok(Some(Taken { end, ..taken })));
        }
    }
}
