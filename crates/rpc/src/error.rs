//! Why a call has no result.

use std::io;

use onc_rpc::{AcceptedStatus, RejectedReply};

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server has no such program (`PROG_UNAVAIL`).
    #[error("the server has no such program")]
    ProgramUnavailable,
    /// The server has other versions of the program (`PROG_MISMATCH`).
    #[error("the server has versions {low} to {high} of this program")]
    ProgramMismatch {
        /// The lowest version of the program that the server has.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// The program has no such procedure (`PROC_UNAVAIL`).
    #[error("the program has no such procedure")]
    ProcedureUnavailable,
    /// The server could not read the arguments (`GARBAGE_ARGS`).
    #[error("the server could not read the arguments")]
    GarbageArguments,
    /// The server failed (`SYSTEM_ERR`).
    #[error("the server failed")]
    SystemError,
    /// The server speaks other versions of RPC (`RPC_MISMATCH`).
    #[error("the server speaks versions {low} to {high} of RPC")]
    RpcMismatch {
        /// The lowest version of RPC that the server speaks.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// The server rejected the client's credentials.
    #[error("the server wants other credentials")]
    Unauthorized,
    /// No reply came in time; over UDP, also not to the repeated calls.
    #[error("no reply came in time")]
    TimedOut,
    /// The connection ended first, or the datagram could not be sent.
    #[error("the connection ended: {0}")]
    Disconnected(io::ErrorKind),
    /// The limit of waiting calls is reached ([`CALLS_MAX`](crate::CALLS_MAX)).
    #[error("too many calls wait for a reply; try again after one has come")]
    TooManyCalls,
    /// The message would exceed [`MESSAGE_MAX`](crate::MESSAGE_MAX).
    #[error("the arguments are too long")]
    TooLong,
}

pub(crate) fn of_status(status: &AcceptedStatus<&[u8]>) -> Result<Vec<u8>, CallError> {
    match *status {
        AcceptedStatus::Success(results) => Ok(results.to_vec()),
        AcceptedStatus::ProgramUnavailable => Err(CallError::ProgramUnavailable),
        AcceptedStatus::ProgramMismatch { low, high } => Err(CallError::ProgramMismatch { low, high }),
        AcceptedStatus::ProcedureUnavailable => Err(CallError::ProcedureUnavailable),
        AcceptedStatus::GarbageArgs => Err(CallError::GarbageArguments),
        AcceptedStatus::SystemError => Err(CallError::SystemError),
    }
}

pub(crate) fn of_rejection(rejection: &RejectedReply) -> CallError {
    match *rejection {
        RejectedReply::RpcVersionMismatch { low, high } => CallError::RpcMismatch { low, high },
        RejectedReply::AuthError(_) => CallError::Unauthorized,
    }
}
