//! What holds among real processes that are started, stopped and killed. In a binary of its own: they take the machine from others.

mod children;
mod commit_kills;
