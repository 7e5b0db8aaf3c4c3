//! The programs as their users meet them: curl, and clients of real servers.

mod all;
mod irc;
mod mail;
mod networks;
mod programs;
mod web;
mod xmpp;
