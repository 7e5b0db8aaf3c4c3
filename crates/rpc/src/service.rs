//! The service: programs with versions and procedures, and calls for its handlers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use onc_rpc::AcceptedStatus;

use crate::MESSAGE_MAX;
use crate::message::{MARK, read_call, reply};

type Handler = Arc<dyn Fn(Call) + Send + Sync>;

/// Programs with versions and procedures, which [`serve_tcp`](Service::serve_tcp) and
/// [`serve_udp`](Service::serve_udp) offer.
///
/// Each version of a program has the procedure 0, which does nothing, automatically (RFC 5531,
/// section 12).
#[derive(Default)]
pub struct Service {
    /// By program, version and procedure.
    programs: BTreeMap<u32, BTreeMap<u32, BTreeMap<u32, Handler>>>,
}

impl Service {
    /// A service without programs.
    pub fn new() -> Service {
        Service::default()
    }

    /// Adds a procedure. The handler runs in the color of the connection or socket, and should pass
    /// the call on: to a color ([`Colored::post`](dapple::Colored::post),
    /// [`Callback::call`](dapple::Callback::call)), or to a task. The call can be answered there,
    /// at any later time.
    #[must_use]
    pub fn procedure(
        mut self,
        program: u32,
        version: u32,
        procedure: u32,
        handler: impl Fn(Call) + Send + Sync + 'static,
    ) -> Service {
        let version = self.programs.entry(program).or_default().entry(version).or_default();
        version.entry(0).or_insert_with(|| Arc::new(|call: Call| call.succeed(Vec::new())));
        version.insert(procedure, Arc::new(handler));
        self
    }

    /// Answers a message: with a call for a handler, or at once with an error. Bytes that are not a
    /// call get no answer, and return false.
    pub(crate) fn dispatch(&self, message: &[u8], send: impl FnOnce(Vec<u8>) + Send + 'static) -> bool {
        let asked = match read_call(message) {
            Ok(asked) => asked,
            Err(answer) => {
                return answer.map(send).is_some();
            }
        };
        let mut call = Call { xid: asked.xid, arguments: asked.arguments, send: Some(Box::new(send)) };
        let found = self.programs.get(&asked.program).ok_or(AcceptedStatus::ProgramUnavailable).and_then(|versions| {
            let version = versions.get(&asked.version).ok_or_else(|| {
                let (low, high) = (versions.keys().next(), versions.keys().next_back());
                let (low, high) = (*low.expect("no program is empty"), *high.expect("no program is empty"));
                AcceptedStatus::ProgramMismatch { low, high }
            })?;
            version.get(&asked.procedure).ok_or(AcceptedStatus::ProcedureUnavailable)
        });
        match found {
            Ok(handler) => handler(call),
            Err(status) => call.answer(status),
        }
        true
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("programs", &self.programs.keys()).finish_non_exhaustive()
    }
}

/// A call that waits for its answer. If it is dropped without one, the server reports a failure
/// (`SYSTEM_ERR`).
pub struct Call {
    xid: u32,
    arguments: Vec<u8>,
    /// Sends the reply to the client; `None` after that.
    send: Option<Box<dyn FnOnce(Vec<u8>) + Send>>,
}

impl Call {
    /// The arguments, in XDR.
    pub fn arguments(&self) -> &[u8] {
        &self.arguments
    }

    /// Answers with results, in XDR. Results above the limit of a message count as a failure of the
    /// server.
    pub fn succeed(mut self, results: Vec<u8>) {
        match results.len() <= MESSAGE_MAX - REPLY_HEAD {
            true => self.answer(AcceptedStatus::Success(&results)),
            false => self.answer(AcceptedStatus::SystemError),
        }
    }

    /// Answers that the arguments could not be read (`GARBAGE_ARGS`).
    pub fn garbage(mut self) {
        self.answer(AcceptedStatus::GarbageArgs);
    }

    fn answer(&mut self, status: AcceptedStatus<&[u8]>) {
        if let Some(send) = self.send.take() {
            send(reply(self.xid, status));
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.answer(AcceptedStatus::SystemError);
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("xid", &self.xid).field("arguments", &self.arguments).finish_non_exhaustive()
    }
}

/// The bytes before the results in a reply.
const REPLY_HEAD: usize = 24 + MARK;
