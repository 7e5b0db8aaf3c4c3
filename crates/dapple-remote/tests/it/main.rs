//! Stages over HTTP/2, with hosts and peers of this process.

#[path = "../../../dapple-io/tests/it/dns_server.rs"]
#[allow(dead_code, reason = "its own tests ask for more")]
mod dns_server;
mod ends;
mod found;
mod hostile;
mod outcomes;
mod staged;

use std::io;

use dapple_io::net::TcpListener;
use dapple_remote::{Host, HostBuilder, Peer, RemoteStage, Report, Stopper};
use dapple_sched::{JoinHandle, Runtime};
use dapple_stage::BoxError;

/// A host that runs in this process.
pub(crate) struct Running {
    pub(crate) address: String,
    pub(crate) stop: Stopper,
    pub(crate) serving: JoinHandle<io::Result<Report>>,
}

impl Running {
    pub(crate) fn start(host: Host) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Running { address, stop: host.stopper(), serving: dapple_sched::spawn(host.serve(listener)) }
    }

    pub(crate) fn stage<Req, Resp>(&self, name: &str) -> RemoteStage<Req, Resp> {
        Peer::new(self.address.as_str()).unwrap().stage(name)
    }

    pub(crate) async fn end(self) -> Report {
        self.stop.stop();
        self.serving.await.unwrap().unwrap()
    }
}

pub(crate) fn runtime() -> Runtime {
    dapple_io::runtime_builder().workers(2).build().unwrap()
}

pub(crate) fn echo() -> HostBuilder {
    Host::builder().register_fn("echo", |text: String| async move { Ok::<_, BoxError>(text) })
}
