//! Users and TLS.

use std::time::Duration;

use dapple_client::{Client, Request};
use dapple_etcd::{Error, Etcd, Get, Put, Reason, Watching};
use dapple_tls::TlsConnector;
use serde_json::json;

use crate::cluster::Cluster;
use crate::run;

/// Makes the user `root`, and wants users from now on.
async fn enable_users(endpoint: &str) {
    let client = Client::new().unwrap();
    for (path, question) in [
        ("user/add", json!({"name": "root", "password": "secret"})),
        ("role/add", json!({"name": "root"})),
        ("user/grant", json!({"user": "root", "role": "root"})),
        ("user/add", json!({"name": "ann", "password": "pass"})),
        ("enable", json!({})),
    ] {
        let request = Request::post(format!("{endpoint}/v3/auth/{path}")).body(question.to_string()).unwrap();
        client.request(request).await.unwrap().error_for_status().unwrap();
    }
}

#[test]
fn a_user_has_a_token_that_is_renewed() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    run(async move {
        cluster.client().await;
        let endpoint = cluster.endpoints()[0].clone();
        let builder = || Etcd::builder([endpoint.clone()]).timeout(Duration::from_secs(30));
        // Before etcd wants users: it says that it has none.
        let root = builder().user("root", "secret").build().unwrap();
        root.put(Put::new("a", "1")).await.unwrap();
        enable_users(&endpoint).await;
        root.put(Put::new("a", "2")).await.unwrap();
        let mut watch = root.watch(Watching::new("a")).await.unwrap();

        let reason = |error: Error| error.reason();
        let none = builder().build().unwrap();
        assert_eq!(none.get("a").await.map_err(reason), Err(Some(Reason::Denied)));
        let wrong = builder().user("root", "wrong").build().unwrap();
        assert_eq!(wrong.get("a").await.map_err(reason), Err(Some(Reason::Denied)));
        let ann = builder().user("ann", "pass").build().unwrap();
        assert_eq!(ann.find(Get::new("a")).await.map_err(reason), Err(Some(Reason::Denied)));

        // A restarted member knows no tokens: the next call and the watch get new ones.
        cluster.kill(0);
        cluster.restart(0);
        assert_eq!(root.get("a").await.unwrap().unwrap().value, "2");
        root.put(Put::new("a", "3")).await.unwrap();
        assert_eq!(watch.next().await.unwrap().len(), 1);
    });
}

#[test]
fn a_connection_is_encrypted_and_its_certificate_checked() {
    let Some(cluster) = Cluster::start_with(1, true) else { return };
    run(async move {
        let trusting = TlsConnector::with_roots([cluster.tls().certificate.der().clone()]).unwrap();
        let etcd = cluster.ready(Etcd::builder(cluster.endpoints()).tls(trusting)).await;
        let mut watch = etcd.watch(Watching::new("a")).await.unwrap();
        etcd.put(Put::new("a", "1")).await.unwrap();
        assert_eq!(watch.next().await.unwrap().len(), 1);
        let distrusting = Etcd::builder(cluster.endpoints()).timeout(Duration::from_millis(500)).build().unwrap();
        let error = distrusting.get("a").await.unwrap_err();
        assert!(matches!(&error, Error::Unavailable { message, .. } if message.contains("certificate")), "{error}");
    });
}
