//! A small web server in this process, and its load in another.

use super::trial::WARM_UP;
use crate::load::Summary;
use crate::machine::{Guard, Places, own_command, pin_to};
use anyhow::{Context, Result, ensure};
use dapple::net::TcpListener;
use dapple::serve::ServeHandle;
use dapple_sched::{Handle, Runtime};
use hyper::Response;
use std::convert::Infallible;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;

/// The server and its load.
pub(super) struct Hello {
    runtime: Runtime,
    server: ServeHandle,
    load: Guard,
    load_secs: f64,
    /// The folder with the expected page.
    _expected: TempDir,
}

impl Hello {
    /// Starts both; the load lasts longer than a trial of this length.
    pub(super) fn start(workers: usize, secs: f64) -> Result<Hello> {
        let places = Places::of(workers);
        if !places.server.is_empty() {
            pin_to(&places.server)?;
        }
        let runtime = dapple::builder().workers(workers).build().context("cannot start Dapple's workers")?;
        let listener = runtime.block_on(async { TcpListener::bind("127.0.0.1:0") }).context("no free port")?;
        let addr = listener.local_addr()?;
        let page = tower::service_fn(|_| async { Ok::<_, Infallible>(Response::new(PAGE.to_owned())) });
        let serving = dapple::serve(listener, page);
        let server = serving.handle();
        drop(runtime.spawn(async move { serving.await }));

        let expected = tempfile::tempdir().context("cannot make a folder for the page")?;
        std::fs::write(expected.path().join("page"), PAGE).context("cannot write the page")?;
        // Recording takes time between windows, too.
        let load_secs = secs * 2.0 + 1.0;
        let mut load = own_command("load")?;
        load.arg(format!("http://{addr}")).arg("--json").arg("--connections").arg(CONNECTIONS.to_string());
        load.arg("--expect").arg(expected.path()).arg("--workers").arg(workers.to_string());
        load.arg("--warm-up-secs")
            .arg((WARM_UP.as_secs_f64() / 2.0).to_string())
            .arg("--secs")
            .arg(load_secs.to_string());
        for core in &places.load {
            load.arg("--cores").arg(core.to_string());
        }
        let load = Guard::start("the load", load.stdout(Stdio::piped()))?;
        Ok(Hello { runtime, server, load, load_secs, _expected: expected })
    }

    pub(super) fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Requests so far.
    pub(super) fn ops(&self) -> u64 {
        self.server.requests()
    }

    /// Waits for the load, which has compared each answer.
    pub(super) fn end(self) -> Result<()> {
        let printed = self.load.output(Duration::from_secs_f64(self.load_secs + 30.0))?;
        let summary: Summary = serde_json::from_str(&printed).context("the load printed no result")?;
        ensure!(summary.errors_total() == 0, "{} requests failed: {:?}", summary.errors_total(), summary.error_example);
        ensure!(summary.compared == summary.requests, "{} of {} compared", summary.compared, summary.requests);
        Ok(())
    }
}

/// 13 bytes.
const PAGE: &str = "Hello, world!";

/// Kept connections of the load.
pub(super) const CONNECTIONS: u64 = 64;
