//! Libraries that need a tokio runtime around them, through the documented adapter.

use std::convert::Infallible;
use std::time::Duration;

use async_compat::CompatExt;
use axum::Router;
use axum::routing::{get, post};
use dapple::{Color, Colored};
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::server::Server;
use crate::{assert_no_tokio, run};

fn client() -> reqwest::ClientBuilder {
    // Of this machine only: no proxy from the environment.
    reqwest::Client::builder().no_proxy()
}

fn many_ask_at_once(workers: usize) {
    run(workers, async {
        let shout = post(async |text: String| {
            assert_no_tokio();
            text.to_uppercase()
        });
        let server = Server::start(Router::new().route("/shout", shout));
        let url = format!("http://{}/shout", server.addr);
        for version in [client(), client().http2_prior_knowledge()] {
            let client = version.build().unwrap();
            let color = Color::new();
            let asking: Vec<_> = (0..40)
                .map(|number| {
                    let request = client.post(&url).body(format!("number {number}"));
                    let ask = async move {
                        let text = request.send().await.unwrap().text().await.unwrap();
                        assert_eq!(text, format!("NUMBER {number}"));
                    };
                    // Half of them of one color.
                    if number % 2 == 0 { dapple::spawn(ask.compat()) } else { color.spawn(ask.compat()) }
                })
                .collect();
            for ask in asking {
                ask.await.unwrap();
            }
        }
    });
}

#[test]
fn many_ask_at_once_on_one_worker() {
    many_ask_at_once(1);
}

#[test]
fn many_ask_at_once_on_four_workers() {
    many_ask_at_once(4);
}

/// The future stays a task of Dapple's: it runs on a worker and in its color, with tokio's context
/// only while it is polled.
#[test]
fn the_context_is_there_for_that_future_only() {
    run(2, async {
        let state = Colored::new(0);
        let inside = async {
            assert!(dapple::on_worker());
            assert!(tokio::runtime::Handle::try_current().is_ok());
            dapple::time::sleep(Duration::from_millis(1)).await;
            state.with(|state| *state += 1).await;
            assert!(tokio::runtime::Handle::try_current().is_ok());
        };
        inside.compat().await;
        assert_no_tokio();
        assert_eq!(state.with(|state| *state).await, 1);
    });
}

/// The behavior that the documentation states, with the words that a user finds in it.
#[test]
fn without_the_adapter_it_panics() {
    run(1, async {
        let server = Server::start(Router::new().route("/", get(async || "page")));
        let url = format!("http://{}/", server.addr);
        let asking = dapple::spawn(async move { client().build().unwrap().get(url).send().await.map(drop) });
        let error = asking.await.unwrap_err();
        let said = format!("{error:?} {error}");
        assert!(said.contains("there is no reactor running"), "{said}");
        // Both forms of the error say what to do, each on one more line.
        assert_eq!(said.matches("\na library made for tokio ran without its context: ").count(), 2, "{said}");
        for way_out in ["`dapple::builder().tokio()`", "`.compat()`"] {
            assert_eq!(said.matches(way_out).count(), 2, "{said}");
        }
    });
}

/// `redis` and `tokio::spawn` panic with texts of tokio's, too.
#[test]
fn each_text_of_tokio_is_known() {
    run(1, async {
        let errors = [
            dapple::spawn(async { drop(tokio::spawn(async {})) }).await.unwrap_err(),
            dapple::spawn(async { tokio::time::sleep(Duration::ZERO).await }).await.unwrap_err(),
            dapple::spawn(async { drop(tokio::net::TcpListener::bind("127.0.0.1:0").await) }).await.unwrap_err(),
            dapple::spawn(async { drop(tokio::runtime::Handle::current()) }).await.unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().contains("`dapple::builder().tokio()`"), "{error}");
        }
        let other = dapple::spawn(async { panic!("on purpose") }).await.unwrap_err();
        assert_eq!(format!("{other} {other:?}"), "the task panicked: on purpose JoinError::Panic(\"on purpose\")");
    });
}

/// tower's own timers are tokio's.
#[test]
fn a_rate_limit_needs_the_adapter() {
    run(2, async {
        let limited = || {
            let service = tower::service_fn(async |number: u32| Ok::<_, Infallible>(number));
            ServiceBuilder::new().rate_limit(2, Duration::from_millis(20)).service(service)
        };
        let calls = async move {
            let mut service = limited();
            let mut total = 0;
            for number in 1..=5 {
                total += service.ready().await.unwrap().call(number).await.unwrap();
            }
            total
        };
        assert_eq!(dapple::spawn(calls.compat()).await.unwrap(), 15);
        let error = dapple::spawn(async move { limited().oneshot(1).await }).await.unwrap_err();
        let said = format!("{error:?}");
        assert!(said.contains("there is no reactor running"), "{said}");
    });
}
