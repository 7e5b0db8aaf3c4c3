//! Misbehaving peers, for `cargo xtask soak web` and for the tests of `dapple serve`, which play
//! them one at a time.

#![forbid(unsafe_code)]

mod attack;
mod dice;
mod frames;
mod handshake;
mod wire;

pub use attack::Attack;
pub use dice::Dice;
pub use frames::{CONTINUATION, DATA, Frame, Frames, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE};
pub use handshake::Unfinished;
pub use wire::{Trust, Wire};
