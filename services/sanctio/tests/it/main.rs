//! The program as its users meet it: a browser's requests, made by curl.

mod programs;
mod web;
