//! Programs on networks in user space, joined by links in memory.
