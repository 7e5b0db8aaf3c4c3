//! HTTP/2 for servers, by hyper; this module bounds what hyper leaves to its users.
//!
//! A connection is a task that reads and writes frames. Every stream is a task of its own, so that
//! all cores answer the requests of one connection; with `--serial` streams have the connection's
//! color, which is then the default one.
//!
//! | action of a peer | reaction |
//! |---|---|
//! | open many streams | 128 at a time; more are refused by the protocol |
//! | open and reset streams repeatedly | after 20 resets before the server has read them, the connection ends (`max_pending_accept_reset_streams`) |
//! | take nothing, or too little, of a reply | the stream is reset at the limit of the [pace](super::pace); the connection takes no new streams and ends with the others |
//! | be silent | without streams, the connection ends after `idle_timeout`, with GOAWAY; a peer that answers no PING for 10 s is considered dead |
//! | send frames that carry no data (PING, SETTINGS, windows by the byte …) | beyond 1,000, plus some for each request and reply, the connection is cut |
//! | send a large head, or many CONTINUATIONs | refused beyond `head.len_max` |
//! | send a body that the service does not read | at most one window of it (64 KB) is taken; the stream ends with the reply |

mod answer;
mod connection;
mod progress;
mod rewind;
mod streams;

pub(super) use self::answer::answer;
pub use self::connection::serve;
