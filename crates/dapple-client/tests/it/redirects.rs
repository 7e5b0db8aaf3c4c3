//! Redirects.

use dapple_client::{Client, Error, HeaderValue, Request};
use http_body_util::BodyExt;

use crate::support::{Reply, Site, reply, run};

/// `/STATUS/N` redirects to `/STATUS/N-1`; `/STATUS/0` describes the request. `/to/X` redirects to
/// the value of the field `x-to`.
async fn handle(request: Request<dapple::serve::Body>) -> Reply {
    let path = request.uri().path().to_owned();
    let mut parts = path[1..].split('/');
    let status: u16 = parts.next().unwrap_or_default().parse().unwrap_or(302);
    let left: u32 = parts.next().unwrap_or_default().parse().unwrap_or(0);
    let to = match request.headers().get("x-to") {
        Some(to) if left > 0 => to.to_str().unwrap().to_owned(),
        _ if left > 0 => format!("{}", left - 1),
        _ => {
            let secrets = ["authorization", "cookie", "x-other"].map(|name| request.headers().contains_key(name));
            let kind = request.headers().contains_key("content-type");
            let method = request.method().clone();
            let len = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len());
            return reply(200, format!("{method} {len} {kind} {secrets:?}"));
        }
    };
    let mut reply = reply(status, "it is elsewhere");
    reply.headers_mut().insert("location", HeaderValue::from_str(&to).unwrap());
    reply
}

fn post(url: String) -> Request<&'static str> {
    let request = Request::post(url).header("authorization", "a").header("cookie", "b").header("x-other", "c");
    request.header("content-type", "text/plain").body("12345").unwrap()
}

#[test]
fn redirects_are_followed_over_the_same_connection() {
    run(async {
        let site = Site::start(false, handle);
        let client = Client::new().unwrap();
        for (status, expected) in [
            (301, "GET 0 false [true, true, true]"),
            (302, "GET 0 false [true, true, true]"),
            (303, "GET 0 false [true, true, true]"),
            (307, "POST 5 true [true, true, true]"),
            (308, "POST 5 true [true, true, true]"),
        ] {
            let response = client.request(post(site.url(&format!("/{status}/3")))).await.unwrap();
            assert_eq!(response.url(), site.url(&format!("/{status}/0")));
            assert_eq!(response.text().await.unwrap(), expected, "{status}");
        }
    });
}

#[test]
fn secrets_do_not_go_to_another_server() {
    run(async {
        let (site, other) = (Site::start(false, handle), Site::start(false, handle));
        let client = Client::new().unwrap();
        let mut request = post(site.url("/307/1"));
        request.headers_mut().insert("x-to", HeaderValue::from_str(&other.url("/307/0")).unwrap());
        let response = client.request(request).await.unwrap();
        assert_eq!(response.url(), other.url("/307/0"));
        assert_eq!(response.text().await.unwrap(), "POST 5 true [false, false, true]");
    });
}

#[test]
fn redirects_have_a_limit_which_may_be_zero() {
    run(async {
        let site = Site::start(false, handle);
        let client = Client::builder().redirects_max(3).build().unwrap();
        assert_eq!(client.get(&site.url("/302/3")).await.unwrap().status(), 200);
        let error = client.get(&site.url("/302/4")).await.unwrap_err();
        assert!(matches!(error, Error::TooManyRedirects { max: 3, .. }), "{error}");
        let client = Client::builder().redirects_max(0).build().unwrap();
        let response = client.get(&site.url("/302/4")).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["location"]),
            (302, &HeaderValue::from_static("3"))
        );
        // A streamed body is gone: the program gets the redirect.
        let body = dapple_client::Body::new(http_body_util::Full::new(bytes::Bytes::from("12345")));
        let request = Request::post(site.url("/307/1")).body(body).unwrap();
        assert_eq!(Client::new().unwrap().request(request).await.unwrap().status(), 307);
    });
}

#[test]
fn redirects_to_unencrypted_urls_are_not_followed() {
    run(async {
        let (site, plain) = (Site::start(true, handle), Site::start(false, handle));
        let client = Client::builder().tls(site.tls.clone()).build().unwrap();
        let to = plain.url("/302/0");
        let url = format!("https://localhost:{}/302/1", site.addr.port());
        let request = Request::get(url).header("x-to", &to).body(()).unwrap();
        let error = client.request(request).await.unwrap_err();
        assert!(matches!(error, Error::Redirect { .. }) && error.to_string().contains(&to), "{error}");
        assert_eq!(plain.connections(), 0);
    });
}
