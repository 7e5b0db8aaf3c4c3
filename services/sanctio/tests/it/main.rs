//! The programs as their users meet them: curl, and clients of real servers.

mod irc;
mod networks;
mod programs;
mod web;
mod xmpp;
