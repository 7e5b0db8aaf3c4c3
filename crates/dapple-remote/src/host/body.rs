//! Reads a message, within the limits on its length and on memory.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use dapple_io::time::timeout;
use dapple_serve::Body;
use dapple_sync::sync::{OwnedSemaphorePermit, Semaphore};
use dapple_tower::{Reason, Refused};
use http_body_util::BodyExt;
use hyper::body::Body as _;

use super::Shared;
use super::limits::UNIT_LEN;
use crate::wire::{Outcome, Problem};

/// A message, and its share of the memory.
pub(crate) struct Read {
    pub(crate) message: Bytes,
    pub(crate) memory: Memory,
}

/// A share of the host's memory for messages.
pub(crate) struct Memory {
    all: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
    len: usize,
}

impl Memory {
    fn new(all: &Arc<Semaphore>) -> Memory {
        Memory { all: all.clone(), taken: None, len: 0 }
    }

    /// Makes the share at least `len` bytes large.
    fn grow(&mut self, len: usize) -> Result<(), Problem> {
        let (has, wants) = (self.len.div_ceil(UNIT_LEN), len.div_ceil(UNIT_LEN));
        let more = u32::try_from(wants.saturating_sub(has)).unwrap_or(u32::MAX);
        let refused = || Problem::refused(&Refused::new(Reason::Memory, RETRY_AFTER));
        let permit = self.all.clone().try_acquire_many_owned(more).map_err(|_| refused())?;
        match &mut self.taken {
            Some(taken) => taken.merge(permit),
            None => self.taken = Some(permit),
        }
        self.len = self.len.max(len);
        Ok(())
    }
}

/// Reads the whole message.
///
/// # Errors
///
/// The message is too long, arrives too slowly, ends early, or there is no memory for it.
pub(crate) async fn read(shared: &Shared, body: Body) -> Result<Read, Problem> {
    let limit = shared.limits.body_timeout;
    match timeout(limit, read_all(shared, body)).await {
        Ok(read) => read,
        Err(_) => {
            let text = format!("the request did not come in within {} ms", limit.as_millis());
            Err(Problem::new(Outcome::Malformed, text))
        }
    }
}

async fn read_all(shared: &Shared, mut body: Body) -> Result<Read, Problem> {
    let len_max = shared.limits.body_max_bytes;
    let too_large = |len: u64| {
        Problem::new(Outcome::TooLarge, format!("{len} bytes or more, and this host takes {len_max} at most"))
    };
    let announced = body.size_hint().lower();
    if announced > len_max as u64 {
        return Err(too_large(announced));
    }
    let mut memory = Memory::new(&shared.gauges.memory);
    memory.grow(announced as usize)?;
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let cut = |error| Problem::new(Outcome::Malformed, format!("the request did not come in: {error}"));
        let Ok(data) = frame.map_err(cut)?.into_data() else { continue };
        let len = first.len() + rest.len() + data.len();
        if len > len_max {
            return Err(too_large(len as u64));
        }
        memory.grow(len)?;
        // Most messages arrive in one piece, which need not be copied.
        match first.is_empty() && rest.is_empty() {
            true => first = data,
            false => {
                if rest.is_empty() {
                    rest.reserve((announced as usize).max(len));
                    rest.extend_from_slice(&std::mem::take(&mut first));
                }
                rest.extend_from_slice(&data);
            }
        }
    }
    let message = if rest.is_empty() { first } else { rest.freeze() };
    Ok(Read { message, memory })
}

/// Memory becomes free as soon as requests end.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_millis(100);
