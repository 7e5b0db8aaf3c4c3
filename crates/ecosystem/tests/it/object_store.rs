//! object_store's HTTP store, which asks a small server of axum's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use dapple::net::TcpListener;
use object_store::http::HttpBuilder;
use object_store::path::Path as Location;
use object_store::{ClientOptions, Error, ObjectStoreExt, PutPayload};

use crate::LIMIT;
use crate::whole_runtime::{assert_both, run};

/// Keeps each `PUT`, by its path.
fn small_store() -> Router {
    let objects = Arc::new(Mutex::new(BTreeMap::<String, Bytes>::new()));
    let (put, removed) = (Arc::clone(&objects), Arc::clone(&objects));
    let read = async move |Path(path): Path<String>| match objects.lock().unwrap().get(&path) {
        Some(bytes) => {
            let mut headers = HeaderMap::new();
            headers.insert("last-modified", "Tue, 24 Nov 2026 00:00:00 GMT".parse().unwrap());
            (headers, bytes.clone()).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    };
    let write = async move |Path(path): Path<String>, body: Bytes| {
        put.lock().unwrap().insert(path, body);
        StatusCode::CREATED
    };
    let remove = async move |Path(path): Path<String>| match removed.lock().unwrap().remove(&path) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    };
    Router::new().route("/{*path}", get(read).put(write).delete(remove))
}

#[test]
fn an_http_store_puts_reads_and_deletes() {
    run(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = dapple::spawn(async move { dapple::serve(listener, small_store()).no_admission().await });
        let options = ClientOptions::new().with_allow_http(true).with_timeout(LIMIT);
        let store = HttpBuilder::new().with_url(url).with_client_options(options).build().unwrap();
        let store = Arc::new(store);
        let tasks: Vec<_> = (0..20u8)
            .map(|number| {
                let store = Arc::clone(&store);
                dapple::spawn(async move {
                    let location = Location::from(format!("colors/{number}"));
                    let bytes = vec![number; 10_000];
                    store.put(&location, PutPayload::from(bytes.clone())).await.unwrap();
                    assert_eq!(store.head(&location).await.unwrap().size, 10_000);
                    let found = store.get(&location).await.unwrap().bytes().await.unwrap();
                    assert_eq!(found, bytes);
                    store.delete(&location).await.unwrap();
                    let error = store.get(&location).await.unwrap_err();
                    assert!(matches!(error, Error::NotFound { .. }), "{error}");
                    assert_both();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        server.abort();
    });
}
