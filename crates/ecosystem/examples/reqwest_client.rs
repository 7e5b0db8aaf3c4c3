//! reqwest needs a tokio runtime around it: `async_compat::Compat` brings one, and the task stays
//! Dapple's.

use async_compat::CompatExt;
use axum::{Router, routing::post};
use dapple::net::TcpListener;
use hyper::server::conn::http1;
use hyper_util::service::TowerToHyperService;

type Problem = Box<dyn std::error::Error + Send + Sync>;

#[dapple::main]
async fn main() -> Result<(), Problem> {
    let router = Router::new().route("/shout", post(async |text: String| text.to_uppercase()));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/shout", listener.local_addr()?);
    dapple::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(router.clone());
            dapple::spawn(http1::Builder::new().serve_connection(stream, service));
        }
    });

    let ask = async move {
        // Of this machine only: no proxy from the environment.
        let client = reqwest::Client::builder().no_proxy().build()?;
        client.post(url).body("hello").send().await?.error_for_status()?.text().await
    };
    // Without `compat` this panics: "there is no reactor running, must be called from the context
    // of a Tokio 1.x runtime".
    let text = dapple::spawn(ask.compat()).await??;
    assert_eq!(text, "HELLO");
    println!("reqwest was answered: {text}");
    Ok(())
}
