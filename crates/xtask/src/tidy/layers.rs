//! The permitted dependencies between crates, and the required parts of every manifest.

use super::Finding;
use crate::workspace::Workspace;
use serde_json::Value;
use std::path::Path;

/// The crates and the ones of ours that each may depend on, from the bottom up. Test dependencies
/// are free: they are in no program, and cargo allows them to point upward.
const MAY_USE: &[(&str, Option<&[&str]>)] = &[
    ("dapple-sched", Some(&[])),
    ("dapple-macros", Some(&[])),
    ("dapple-stm", Some(&["dapple-sched"])),
    ("dapple-sync", Some(&["dapple-sched"])),
    ("dapple-io", Some(&["dapple-sched", "dapple-sync"])),
    ("dapple-net", Some(&["dapple-sched", "dapple-io"])),
    ("dapple-sim", Some(&["dapple-sched", "dapple-io"])),
    ("dapple-insight", Some(&["dapple-sched", "dapple-io", "dapple-http", "dapple-serve"])),
    ("dapple-flow", Some(&["dapple-sched", "dapple-io", "dapple-sync"])),
    ("dapple-tls", Some(&["dapple-sched", "dapple-io"])),
    ("dapple-http", Some(&[])),
    ("dapple-tower", Some(&["dapple-sched", "dapple-io", "dapple-sync", "dapple-flow"])),
    ("dapple-client", Some(&["dapple-sched", "dapple-io", "dapple-sync", "dapple-tls", "dapple-tower", "dapple-http"])),
    ("dapple-etcd", Some(&["dapple-sched", "dapple-io", "dapple-sync", "dapple-tls", "dapple-tower", "dapple-client"])),
    ("dapple-commit", Some(&["dapple-sched", "dapple-io", "dapple-sync", "dapple-tower"])),
    ("dapple-stage", Some(&["dapple-sched", "dapple-io", "dapple-sync", "dapple-tower"])),
    ("dapple-serve", Some(&["dapple-sched", "dapple-io", "dapple-sync", "dapple-tower", "dapple-tls", "dapple-http"])),
    ("dapple-store", Some(&["dapple-sched", "dapple-io", "dapple-sync", "dapple-tower", "dapple-etcd"])),
    (
        "dapple-remote",
        Some(&[
            "dapple-sched",
            "dapple-io",
            "dapple-sync",
            "dapple-tls",
            "dapple-tower",
            "dapple-client",
            "dapple-etcd",
            "dapple-stage",
            "dapple-serve",
        ]),
    ),
    (
        "dapple-cluster",
        Some(&["dapple-sched", "dapple-io", "dapple-sync", "dapple-tower", "dapple-client", "dapple-etcd"]),
    ),
    (
        "dapple",
        Some(&[
            "dapple-sched",
            "dapple-stm",
            "dapple-store",
            "dapple-io",
            "dapple-net",
            "dapple-insight",
            "dapple-sim",
            "dapple-flow",
            "dapple-client",
            "dapple-etcd",
            "dapple-sync",
            "dapple-tower",
            "dapple-commit",
            "dapple-stage",
            "dapple-remote",
            "dapple-serve",
            "dapple-tls",
            "dapple-macros",
        ]),
    ),
    ("dapple-sign", Some(&["dapple", "dapple-serve"])),
    ("dapple-files", Some(&["dapple", "dapple-http", "dapple-sched"])),
    (
        "dapple-cli",
        Some(&[
            "dapple",
            "dapple-cluster",
            "dapple-files",
            "dapple-sign",
            "dapple-client",
            "dapple-http",
            "dapple-serve",
        ]),
    ),
    ("soak", Some(&["dapple"])),
    ("scenarios", Some(&["dapple", "dapple-client", "dapple-sched", "dapple-sim"])),
    ("ecosystem", Some(&["dapple"])),
    ("rpc", Some(&["dapple"])),
    ("bench", None),
    ("xtask", Some(&[])),
];

/// The row of each service: of Dapple it uses the public crate only. Programs of one service share a library, and the names of all
/// of them begin with the same word.
const SERVICE: Option<&[&str]> = Some(&["dapple"]);
/// The folder of the services.
pub(crate) const SERVICES: &str = "services/";

/// Checks the manifests of all our crates.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<Finding>, String> {
    let ours: Vec<&str> = workspace.packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let path = package["manifest_path"].as_str().unwrap_or_default();
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
        findings.extend(check_package(&workspace.relative(Path::new(path)), &text, package, &ours));
    }
    Ok(findings)
}

fn check_package(manifest: &str, text: &str, package: &Value, ours: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, what: String| findings.push(Finding::new(manifest, line, what));
    let name = package["name"].as_str().unwrap_or_default();
    let row = match manifest.starts_with(SERVICES) {
        true => Some(SERVICE),
        false => MAY_USE.iter().find(|(known, _)| *known == name).map(|(_, row)| *row),
    };
    if row.is_none() {
        find(1, format!("`{name}` has no row; add it to MAY_USE in crates/xtask/src/tidy/layers.rs"));
    }
    let is_of_service = |used: &str| row == Some(SERVICE) && family(used) == family(name) && family(used) != "dapple";
    if let Some(Some(allowed)) = row {
        let other = |used: &&str| ours.contains(used) && !allowed.contains(used) && !is_of_service(used);
        for used in used_by(package).filter(other) {
            find(line_of(text, used), format!("`{name}` may not use `{used}`; it may use {}", list(allowed)));
        }
    }
    for key in ["description", "license"] {
        if package[key].as_str().is_none_or(str::is_empty) {
            find(
                1,
                format!(
                    "no {key}; write `{}`",
                    if key == "license" { "license.workspace = true" } else { "description = \"…\"" }
                ),
            );
        }
    }
    if !inherits_lints(text) {
        find(1, "the lints of the workspace do not apply; write `[lints]` and below it `workspace = true`".to_owned());
    }
    findings
}

/// The first word of a package's name.
fn family(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}

/// Names of the packages that a package uses, in its program or in building it.
fn used_by(package: &Value) -> impl Iterator<Item = &str> {
    let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
    dependencies
        .iter()
        .filter(|dependency| dependency["kind"] != "dev")
        .filter_map(|dependency| dependency["name"].as_str())
}

fn inherits_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    let section = lines.by_ref().take_while(|line| !line.starts_with('['));
    section.map(|line| line.replace(' ', "")).any(|line| line == "workspace=true")
        || manifest.contains("lints.workspace = true")
}

fn line_of(text: &str, dependency: &str) -> usize {
    text.lines().position(|line| line.trim_start().starts_with(dependency)).map_or(1, |line| line + 1)
}

fn list(allowed: &[&str]) -> String {
    if allowed.is_empty() { "none of ours".to_owned() } else { allowed.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GOOD: &str =
        "[package]\nname = \"dapple-io\"\n\n[lints]\nworkspace = true\n\n[dependencies]\ndapple.workspace = true\n";

    fn whats(name: &str, text: &str, dependencies: Value) -> Vec<(usize, String)> {
        whats_in("Cargo.toml", name, text, dependencies)
    }

    fn whats_in(manifest: &str, name: &str, text: &str, dependencies: Value) -> Vec<(usize, String)> {
        let package = json!({"name": name, "description": "A.", "license": "MIT", "dependencies": dependencies});
        let findings = check_package(
            manifest,
            text,
            &package,
            &["dapple", "dapple-io", "dapple-sched", "bench", "new", "new-parts"],
        );
        findings.into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn a_crate_that_reaches_upward_is_found() {
        let found = whats("dapple-io", GOOD, json!([{"name": "dapple", "kind": null}]));
        assert_eq!(found, [(8, "`dapple-io` may not use `dapple`; it may use dapple-sched, dapple-sync".to_owned())]);
        let build = whats("xtask", GOOD, json!([{"name": "dapple", "kind": "build"}]));
        assert_eq!(build.len(), 1);
    }

    #[test]
    fn what_a_row_allows_passes() {
        assert_eq!(
            whats("dapple-io", GOOD, json!([{"name": "dapple-sched", "kind": null}, {"name": "serde", "kind": null}])),
            []
        );
        assert_eq!(whats("dapple-io", GOOD, json!([{"name": "dapple", "kind": "dev"}])), []);
        assert_eq!(whats("bench", GOOD, json!([{"name": "dapple", "kind": null}])), []);
    }

    #[test]
    fn services_need_no_row_and_use_the_public_crate_only() {
        let found = |used| whats_in("services/new/Cargo.toml", "new", GOOD, json!([{"name": used, "kind": null}]));
        assert_eq!(found("dapple"), []);
        assert_eq!(found("dapple-io"), [(1, "`new` may not use `dapple-io`; it may use dapple".to_owned())]);
        assert_eq!(found("new-parts"), []);
        assert_eq!(found("bench").len(), 1);
    }

    #[test]
    fn a_crate_without_row_text_or_lints_is_found() {
        assert_eq!(whats("new", GOOD, json!([])).len(), 1);
        assert_eq!(whats("bench", "[package]\n[lints.rust]\n[dependencies]\nworkspace = true\n", json!([])).len(), 1);
        let bare = json!({"name": "bench", "description": null, "license": "", "dependencies": []});
        assert_eq!(check_package("Cargo.toml", GOOD, &bare, &[]).len(), 2);
    }
}
