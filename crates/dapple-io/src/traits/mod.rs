//! The I/O traits of other crates for our streams, each family under a feature of its name.
//!
//! All of them have the same operations: read into a buffer, write from one or several, end the
//! stream. Vectored writes go to the kernel as they are. Flushing does nothing, because nothing is
//! buffered here.

#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
mod hyper;
#[cfg(feature = "tokio")]
mod tokio;

/// Calls a macro for every type that can be read, with its generic parameters in brackets first.
#[cfg(any(feature = "futures-io", feature = "hyper", feature = "tokio"))]
macro_rules! for_each_reader {
    ($implement:ident) => {
        $implement!([] crate::net::TcpStream);
        $implement!([] crate::net::UnixStream);
        $implement!([] crate::pipe::Receiver);
        $implement!([S: crate::stream::RawRead] crate::net::ReadHalf<S>);
    };
}
#[cfg(any(feature = "futures-io", feature = "hyper", feature = "tokio"))]
use for_each_reader;

/// Calls a macro for every type that can be written, with its generic parameters in brackets first.
#[cfg(any(feature = "futures-io", feature = "hyper", feature = "tokio"))]
macro_rules! for_each_writer {
    ($implement:ident) => {
        $implement!([] crate::net::TcpStream);
        $implement!([] crate::net::UnixStream);
        $implement!([] crate::pipe::Sender);
        $implement!([S: crate::stream::RawWrite] crate::net::WriteHalf<S>);
    };
}
#[cfg(any(feature = "futures-io", feature = "hyper", feature = "tokio"))]
use for_each_writer;
