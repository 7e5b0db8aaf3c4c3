//! Tests with real processes that are started, stopped and killed. They have their own binary,
//! because they need the machine for themselves.

#[allow(dead_code, reason = "not all of it is of use here")]
#[path = "../../../dapple-commit/tests/processes/children.rs"]
mod children;

mod balance_kills;
mod operators;
mod replicas;

pub(crate) use with_hosts::{listen, runtime, until};

mod with_hosts {
    use std::net::SocketAddr;
    use std::time::Duration;

    use dapple_io::net::TcpListener;
    use dapple_io::time::{sleep, timeout};
    use dapple_sched::Runtime;

    use crate::children::LONG;

    pub(crate) fn runtime() -> Runtime {
        dapple_io::runtime_builder().workers(2).build().unwrap()
    }

    /// Waits until the condition holds.
    pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let waiting = async {
            while !is_so() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("{what}: that does not happen"));
    }

    /// A listener where a host was before. A client's failed attempt to connect may hold the port
    /// for a moment.
    pub(crate) async fn listen(address: SocketAddr) -> TcpListener {
        loop {
            match TcpListener::bind(address) {
                Ok(listener) => return listener,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }
}
