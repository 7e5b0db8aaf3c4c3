//! The state machine of rustls, with one step function for servers and clients.

use std::ops::Deref;

use rustls::CommonState;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};

use crate::buffers::Buffer;

/// The session of either side.
///
/// rustls encrypts into and reads from Dapple's buffers. Its buffered connections would hold 4 KB
/// each while idle, read 4 KB per call, and write at most 64 KB without growing.
pub(crate) enum Session {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// The action when the session can send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish<'a> {
    Nothing,
    Encrypt(&'a [u8]),
    Close,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The session may have more work with its data.
    More,
    /// Plaintext was delivered.
    Data,
    /// The handshake continues when the other side has sent more.
    Blocked,
    /// All received data is processed; the wish was fulfilled.
    Open,
    /// The other side has ended its data.
    PeerEnded,
    /// Both sides have ended their data.
    Closed,
}

impl Session {
    /// Processes received data up to the next event; data to send goes to `outgoing`, decrypted
    /// data to `sink`.
    pub(crate) fn step(
        &mut self,
        incoming: &mut Buffer,
        outgoing: &mut Buffer,
        wish: Wish<'_>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<Step, rustls::Error> {
        let (discard, result) = match self {
            Session::Server(session) => {
                work_off(session.process_tls_records(incoming.filled_mut()), outgoing, wish, sink)
            }
            Session::Client(session) => {
                work_off(session.process_tls_records(incoming.filled_mut()), outgoing, wish, sink)
            }
        };
        incoming.consume(discard);
        result
    }
}

impl Deref for Session {
    type Target = CommonState;

    fn deref(&self) -> &CommonState {
        match self {
            Session::Server(session) => session,
            Session::Client(session) => session,
        }
    }
}

/// Handles one state, and returns how much received data is consumed.
fn work_off<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    outgoing: &mut Buffer,
    wish: Wish<'_>,
    sink: &mut dyn FnMut(&[u8]),
) -> (usize, Result<Step, rustls::Error>) {
    let mut discard = status.discard;
    let state = match status.state {
        Ok(state) => state,
        Err(error) => return (discard, Err(error)),
    };
    let step = match state {
        ConnectionState::EncodeTlsData(mut data) => append(outgoing, LEAST, |room| match data.encode(room) {
            Ok(count) => Attempt::Done(count),
            Err(EncodeError::InsufficientSize(size)) => Attempt::Needs(size.required_size),
            Err(error) => Attempt::Failed(rustls::Error::General(error.to_string())),
        })
        .map(|()| Step::More),
        ConnectionState::TransmitTlsData(data) => {
            // The data is in Dapple's buffer, which is sent in order.
            data.done();
            Ok(Step::More)
        }
        ConnectionState::ReadTraffic(mut records) => {
            let mut result = Ok(Step::Data);
            while let Some(record) = records.next_record() {
                match record {
                    Ok(record) => {
                        sink(record.payload);
                        discard += record.discard;
                    }
                    Err(error) => result = Err(error),
                }
            }
            result
        }
        ConnectionState::WriteTraffic(mut traffic) => match wish {
            Wish::Nothing => Ok(()),
            Wish::Encrypt(bytes) => {
                append(outgoing, encrypted_len(bytes.len()), |room| traffic.encrypt(bytes, room).into())
            }
            Wish::Close => append(outgoing, LEAST, |room| traffic.queue_close_notify(room).into()),
        }
        .map(|()| Step::Open),
        ConnectionState::PeerClosed => Ok(Step::PeerEnded),
        ConnectionState::Closed => Ok(Step::Closed),
        ConnectionState::BlockedHandshake => Ok(Step::Blocked),
        // Early data is off, and there are no other states.
        state => Err(rustls::Error::General(format!("unexpected state {state:?}"))),
    };
    (discard, step)
}

enum Attempt {
    Done(usize),
    Needs(usize),
    Failed(rustls::Error),
}

impl From<Result<usize, EncryptError>> for Attempt {
    fn from(result: Result<usize, EncryptError>) -> Self {
        match result {
            Ok(count) => Attempt::Done(count),
            Err(EncryptError::InsufficientSize(size)) => Attempt::Needs(size.required_size),
            Err(EncryptError::EncryptExhausted) => Attempt::Failed(rustls::Error::EncryptError),
        }
    }
}

/// Lets a closure write to the end of the buffer, with more room if it asks for that.
fn append(
    outgoing: &mut Buffer,
    least: usize,
    mut write: impl FnMut(&mut [u8]) -> Attempt,
) -> Result<(), rustls::Error> {
    let mut least = least;
    loop {
        match write(outgoing.spare(least)) {
            Attempt::Done(count) => {
                outgoing.add(count);
                return Ok(());
            }
            Attempt::Needs(required) if required > least => least = required,
            Attempt::Needs(_) => return Err(rustls::Error::EncryptError),
            Attempt::Failed(error) => return Err(error),
        }
    }
}

/// The maximum, in either version.
fn encrypted_len(len: usize) -> usize {
    len + len.div_ceil(RECORD) * 32
}

/// The plaintext of a full record.
pub(crate) const RECORD: usize = 16 * 1024;

/// Room for most handshake messages.
const LEAST: usize = 4 * 1024;
