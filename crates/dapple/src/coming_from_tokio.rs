#![doc = include_str!("coming_from_tokio.md")]
