//! Servers on real sockets, with clients who behave and clients who do not.
