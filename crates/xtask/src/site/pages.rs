//! The table of contents of the site.

/// A part and its pages: a title, and a path from the root of the repository.
pub(crate) type Part = (&'static str, &'static [(&'static str, &'static str)]);

/// All pages. `cargo xtask site` fails where `docs` has a page that is not here.
pub(crate) const PARTS: &[Part] = &[
    (
        "Start",
        &[
            ("Dapple", "README.md"),
            ("The first hour", "docs/first-hour.md"),
            ("Coming from tokio", "docs/from-tokio.md"),
            ("Coming from tokio: what to write instead", "crates/dapple/src/coming_from_tokio.md"),
        ],
    ),
    (
        "Programs",
        &[
            ("dapple serve", "docs/serve.md"),
            ("dapple proxy", "docs/proxy.md"),
            ("dapple store", "docs/store.md"),
            ("dapple files", "docs/files.md"),
            ("dapple sign", "docs/sign.md"),
            ("dapple host and cluster", "docs/cluster.md"),
            ("RFC 9110 and 9112", "docs/rfc.md"),
            ("Limits", "docs/limits.md"),
        ],
    ),
    (
        "Write a service",
        &[
            ("Serving", "docs/serving.md"),
            ("Tasks", "docs/tasks.md"),
            ("Threads on events", "docs/threads.md"),
            ("Sources, sinks and queues", "docs/io.md"),
            ("TCP in the program", "docs/network.md"),
            ("Transactions", "docs/stm.md"),
            ("An engine of a store", "docs/engines.md"),
            ("Services", "docs/services.md"),
        ],
    ),
    (
        "Survive load",
        &[
            ("Overload", "docs/overload.md"),
            ("Stages", "docs/stages.md"),
            ("Operators", "docs/operators.md"),
            ("Stages on other machines", "docs/remote.md"),
            ("Middleware", "docs/middleware.md"),
        ],
    ),
    (
        "How it works",
        &[
            ("The scheduler", "docs/scheduler.md"),
            ("Architecture", "ARCHITECTURE.md"),
            ("Safety", "docs/safety.md"),
            ("Observability", "docs/observability.md"),
            ("Insight", "docs/insight.md"),
            ("A service in the simulator", "docs/simulation.md"),
            ("The papers", "docs/papers.md"),
            ("Seven properties of a service", "docs/service-properties.md"),
            ("Dependencies", "docs/dependencies.md"),
        ],
    ),
    (
        "Figures and people",
        &[
            ("Results", "bench/RESULTS.md"),
            ("Other platforms", "COMPARE.md"),
            ("Changes", "CHANGELOG.md"),
            ("Contributing", "CONTRIBUTING.md"),
        ],
    ),
];
