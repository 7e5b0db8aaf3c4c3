//! Messages as bytes. All begin with the four bytes of a record mark, which datagrams omit.

use onc_rpc::auth::AuthFlavor;
use onc_rpc::{AcceptedReply, AcceptedStatus, CallBody, Error, MessageType, RejectedReply, ReplyBody, RpcMessage};

use crate::error::{CallError, of_rejection, of_status};

/// The length of a record mark.
pub(crate) const MARK: usize = 4;

/// A call as a server sees it.
pub(crate) struct Asked {
    pub(crate) xid: u32,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) arguments: Vec<u8>,
}

/// Reads a call. The error is the reply to send, if there is one: bytes that are not a call get
/// none.
pub(crate) fn read_call(message: &[u8]) -> Result<Asked, Option<Vec<u8>>> {
    let parsed = match RpcMessage::try_from(message) {
        Ok(parsed) => parsed,
        Err(Error::InvalidRpcVersion(_)) => {
            let xid = u32::from_be_bytes([message[4], message[5], message[6], message[7]]);
            let denied = RejectedReply::RpcVersionMismatch { low: RPC_VERSION, high: RPC_VERSION };
            return Err(Some(bytes(xid, MessageType::Reply(ReplyBody::Denied(denied)))));
        }
        Err(_) => return Err(None),
    };
    let call = parsed.call_body().ok_or(None)?;
    Ok(Asked {
        xid: parsed.xid(),
        program: call.program(),
        version: call.program_version(),
        procedure: call.procedure(),
        arguments: call.payload().to_vec(),
    })
}

/// Reads a reply: the number of its call, and the result.
pub(crate) fn read_reply(message: &[u8]) -> Option<(u32, Result<Vec<u8>, CallError>)> {
    let parsed = RpcMessage::try_from(message).ok()?;
    let result = match parsed.reply_body()? {
        ReplyBody::Accepted(reply) => of_status(reply.status()),
        ReplyBody::Denied(rejection) => Err(of_rejection(rejection)),
    };
    Some((parsed.xid(), result))
}

pub(crate) fn call(xid: u32, [program, version, procedure]: [u32; 3], arguments: &[u8]) -> Vec<u8> {
    let (credentials, verifier) = (AuthFlavor::AuthNone(None), AuthFlavor::AuthNone(None));
    let body = CallBody::new(program, version, procedure, credentials, verifier, arguments);
    bytes(xid, MessageType::Call(body))
}

pub(crate) fn reply(xid: u32, status: AcceptedStatus<&[u8]>) -> Vec<u8> {
    let reply = AcceptedReply::new(AuthFlavor::AuthNone(None), status);
    bytes(xid, MessageType::Reply(ReplyBody::Accepted(reply)))
}

fn bytes(xid: u32, message: MessageType<&[u8], &[u8]>) -> Vec<u8> {
    RpcMessage::new(xid, message).serialise().expect("a write to memory cannot fail")
}

/// The message of a datagram.
pub(crate) fn from_datagram(datagram: &[u8]) -> Vec<u8> {
    let mut message = mark(datagram.len()).to_vec();
    message.extend_from_slice(datagram);
    message
}

/// The mark of a record in one piece.
pub(crate) fn mark(len: usize) -> [u8; MARK] {
    let len = u32::try_from(len).expect("messages are bounded");
    (LAST_FRAGMENT | len).to_be_bytes()
}

/// The bit of a mark for the last fragment of a record.
pub(crate) const LAST_FRAGMENT: u32 = 1 << 31;

const RPC_VERSION: u32 = 2;
