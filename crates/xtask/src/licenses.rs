//! Checks that every dependency has an allowed license.
//!
//! Security advisories are not checked here, because their database is on the network and `cargo
//! xtask ci` must work without it: `cargo install cargo-deny && cargo deny check advisories`.

use crate::workspace::Workspace;

/// Licenses that require no more than a notice.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    // For data: Mozilla's list of certificate authorities. Requires its text with the data.
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages with the MPL-2.0, which asks for the source of changes to their own files. Only `weakproxy`, below lol_html,
/// `sanctio-irc` and `sanctio-xmpp` build them, which are not published; a new one needs a look at what builds it.
const MOZILLA: &[&str] = &["cssparser", "cssparser-macros", "dtoa-short", "irc-proto", "minidom", "selectors"];

/// Checks all packages of a build here; true if all are allowed.
pub(crate) fn run() -> Result<bool, String> {
    let workspace = Workspace::with_dependencies()?;
    let mut refused = 0;
    for package in &workspace.packages {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let license = text("license");
        let is_known = license == "MPL-2.0" && MOZILLA.contains(&text("name"));
        if !allows(license) && !is_known {
            refused += 1;
            let shown = if license.is_empty() { "no license expression" } else { license };
            println!(
                "{} {}: {shown}; use another crate, or add the license to ALLOWED in crates/xtask/src/licenses.rs and say why",
                text("name"),
                text("version"),
            );
        }
    }
    println!("licenses: {} packages, {refused} refused", workspace.packages.len());
    println!("advisories are not checked here: cargo install cargo-deny && cargo deny check advisories");
    Ok(refused == 0)
}

/// Whether allowed licenses alone satisfy an SPDX expression. Old crates write `/` for OR.
fn allows(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, next: 0 };
    let allowed = parser.any();
    allowed && parser.next == words.len()
}

/// `AND` binds before `OR`, as in SPDX; malformed expressions are not allowed.
struct Parser<'a> {
    words: &'a [&'a str],
    next: usize,
}

impl Parser<'_> {
    fn accept(&mut self, word: &str) -> bool {
        let found = self.words.get(self.next) == Some(&word);
        self.next += usize::from(found);
        found
    }

    fn any(&mut self) -> bool {
        let mut allowed = self.all();
        while self.accept("OR") {
            allowed |= self.all();
        }
        allowed
    }

    fn all(&mut self) -> bool {
        let mut allowed = self.one();
        while self.accept("AND") {
            allowed &= self.one();
        }
        allowed
    }

    fn one(&mut self) -> bool {
        if self.accept("(") {
            let allowed = self.any();
            return self.accept(")") && allowed;
        }
        let Some(license) = self.words.get(self.next) else {
            return false;
        };
        self.next += 1;
        if self.accept("WITH") {
            let exception = self.words.get(self.next).copied().unwrap_or_default();
            self.next += 1;
            return ALLOWED.contains(&format!("{license} WITH {exception}").as_str());
        }
        ALLOWED.contains(license)
    }
}

#[cfg(test)]
mod tests {
    use super::allows;

    #[test]
    fn expressions_that_pass() {
        for expression in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR MIT",
        ] {
            assert!(allows(expression), "{expression}");
        }
    }

    #[test]
    fn expressions_that_fail() {
        for expression in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
            "GPL-2.0 WITH Classpath-exception-2.0",
            "OR",
        ] {
            assert!(!allows(expression), "{expression}");
        }
    }
}
