//! The crates that each command measures. `cargo xtask results` marks a table as older once their code has changed.

/// The names of the crates, for a subcommand that measures.
pub(crate) fn crates(subcommand: &str) -> &'static [&'static str] {
    match subcommand {
        "colors" | "table2" | "memory" => &["dapple-sched"],
        "settings" | "idle" | "io" => &["dapple-io", "dapple-sched"],
        "insight" => &[
            "dapple-insight",
            "dapple-client",
            "dapple-serve",
            "dapple-http",
            "dapple-stage",
            "dapple-store",
            "dapple-io",
            "dapple-sched",
        ],
        "threads" => &["dapple", "dapple-stm", "dapple-io", "dapple-sched"],
        "net" => {
            &["dapple-cli", "dapple-serve", "dapple-http", "dapple-net", "dapple-sync", "dapple-io", "dapple-sched"]
        }
        "web" | "locks" => {
            &["dapple-cli", "dapple-serve", "dapple-http", "dapple-tls", "dapple-sync", "dapple-io", "dapple-sched"]
        }
        "proxy" => {
            &["dapple-cli", "dapple-client", "dapple-serve", "dapple-http", "dapple-sync", "dapple-io", "dapple-sched"]
        }
        "overload" => &["dapple", "dapple-serve", "dapple-http", "dapple-sync", "dapple-io", "dapple-sched"],
        "signserver" => &["dapple-sign", "dapple-stage", "dapple-sync", "dapple-io", "dapple-sched"],
        "services" => &[
            "dapple-remote",
            "dapple-serve",
            "dapple-stage",
            "dapple-store",
            "dapple-tower",
            "dapple-io",
            "dapple-sched",
        ],
        "store" => &["dapple-store", "dapple-io", "dapple-sched"],
        "regret" => &[
            "dapple-cli",
            "dapple-serve",
            "dapple-http",
            "dapple-sign",
            "dapple-stage",
            "dapple-stm",
            "dapple-sync",
            "dapple-io",
            "dapple-sched",
        ],
        _ => &[],
    }
}
