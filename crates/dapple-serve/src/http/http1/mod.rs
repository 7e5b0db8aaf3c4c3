//! HTTP/1.0 and 1.1 for servers: strict, bounded, and cheap for each request.
//!
//! A connection is one task in its own color. It is in one of these states:
//!
//! | state | holds | waits for | at most | then |
//! |---|---|---|---|---|
//! | idle | nothing | the first byte of a request | `idle_timeout` | head; ends silently, also when the server is closing |
//! | head | a workspace | the end of the head | `head_timeout` in total | answer; refuse with `408` |
//! | answer | the same | the service, and as much of the body as it asks for | the service's own limits; the client's pace | send |
//! | send | the same | room in the kernel's buffer, and the pieces of the body | the client's pace | idle, head, linger, end |
//! | refuse | the same | the reply to be written | `linger_timeout` | linger |
//! | linger | a small buffer | the client's end; it drops any bytes | `linger_timeout` | end |
//! | tunnel | the resources of the tunnel | whatever the tunnel waits for | | end |
//!
//! Replies to requests that arrived together are written together: the connection collects output
//! until the input has no complete head left, or it must wait.

mod ahead;
mod answer;
mod connection;
mod detached;
mod incoming;
mod linger;
mod observed;
mod outgoing;
mod send;
#[cfg(test)]
mod tests;
mod watch;
mod workspace;

pub use self::connection::{End, serve};
