//! HTTP/2 for servers, by hyper; what is bounded here is what hyper leaves to its users.
//!
//! A connection is a task: it reads and writes frames. Every stream is a task of its own, so that the requests of one connection
//! are answered on all cores; with `--serial` they have the connection's color, which is then the default one.
//!
//! | what a peer can do | what happens |
//! |---|---|
//! | open many streams | 128 at a time; more are refused by the protocol |
//! | open and reset streams, over and over | after 20 resets that nobody has looked at yet, the connection ends (`max_pending_accept_reset_streams`) |
//! | take nothing, or too little, of a reply | the stream is reset when the [pace](super::pace) says so; the connection takes no new streams and ends with the others |
//! | be silent | without streams, the connection ends after `idle_timeout`, politely; a peer that answers no PING for 10 s is gone |
//! | send frames that carry nothing (PING, SETTINGS, windows by the byte …) | beyond 1,000, and some for each request and reply, the connection is cut |
//! | send a large head, or many CONTINUATIONs | refused beyond `head.len_max` |
//! | send a body that nobody reads | at most a window of it (64 KB) is taken; the stream ends with the reply |

mod answer;
mod connection;
mod progress;
mod rewind;
mod streams;

pub(super) use self::answer::answer;
pub use self::connection::serve;
