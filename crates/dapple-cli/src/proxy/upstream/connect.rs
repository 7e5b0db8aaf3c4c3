//! Connecting to where it is allowed.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use dapple::net::{Connector, TcpStream, resolve};
use dapple::time::{Instant, timeout_at};

use super::Origin;
use crate::proxy::failure::Failure;
use crate::proxy::rules::Rules;

/// Looks a host up, leaves out what may not be reached, and races the rest. What has been judged is what is connected to: there
/// is no second look-up.
pub(super) async fn connect(rules: &Rules, origin: &Origin, limit: Duration) -> Result<TcpStream, Failure> {
    let deadline = Instant::now() + limit;
    let resolving = timeout_at(deadline, resolve(&origin.host)).await;
    let ips = resolving.unwrap_or(Err(io::ErrorKind::TimedOut.into())).map_err(|error| unresolved(&error))?;
    let connecting = async {
        let (mut allowed, mut refused) = (Vec::new(), None);
        for ip in ips {
            let addr = SocketAddr::new(ip, origin.port);
            match rules.may_connect(&origin.host, addr) {
                Ok(()) => allowed.push(addr),
                Err(kind) => refused = Some(Failure::Refused(ip, kind)),
            }
        }
        if allowed.is_empty() {
            return Err(refused.unwrap_or_else(|| Failure::Unknown("it has no address".to_owned())));
        }
        Connector::new().connect(allowed).await.map_err(|error| Failure::Unreachable(error.to_string()))
    };
    timeout_at(deadline, connecting).await.unwrap_or(Err(Failure::TimedOut("Connecting to the server")))
}

fn unresolved(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::TimedOut => Failure::LookupTimeout,
        _ => Failure::Unknown(error.to_string()),
    }
}
