//! Rights: which user may read and change which part of the tree.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::path::{PathError, TreePath};

/// A permission for a part of the tree. A later one includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum May {
    /// Neither see nor change it.
    Nothing,
    /// Read it.
    Read,
    /// Read and change it.
    Write,
}

/// Rights by path and user, from a TOML file:
///
/// ```toml
/// default = "read"          # for paths without a rule; "write" if left out
///
/// [[rule]]
/// path = "/photos"          # and everything below
/// users = ["ann", "bob"]    # everyone, if left out
/// may = "write"
///
/// [[rule]]
/// path = "/photos/private"
/// may = "nothing"
/// ```
///
/// The rule with the longest path counts, and among those with the same path one that names the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    default: May,
    rules: Vec<Rule>,
    is_read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    path: TreePath,
    /// Empty: everyone.
    users: Vec<String>,
    may: May,
}

/// Rules that cannot be used; the text says why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// The file cannot be read.
    #[error("cannot read the rules in {0}: {1}")]
    Read(PathBuf, #[source] std::io::Error),
    /// It is not TOML of this form.
    #[error("the rules in {0}: {1}")]
    Form(PathBuf, #[source] Box<toml::de::Error>),
    /// A path names no file of a tree.
    #[error("the rules in {0}: the path {1:?}: {2}")]
    Path(PathBuf, String, #[source] PathError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    default: Option<May>,
    #[serde(default)]
    rule: Vec<RuleEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    path: String,
    #[serde(default)]
    users: Vec<String>,
    may: May,
}

impl Rules {
    /// Everyone may do this everywhere.
    pub fn all(may: May) -> Rules {
        Rules { default: may, rules: Vec::new(), is_read_only: false }
    }

    /// Reads rules from a file. Blocks.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not of the form above.
    pub fn load(file: &Path) -> Result<Rules, RulesError> {
        let text = std::fs::read_to_string(file).map_err(|error| RulesError::Read(file.to_owned(), error))?;
        Rules::parse(&text, file)
    }

    pub(crate) fn parse(text: &str, file: &Path) -> Result<Rules, RulesError> {
        let read: RulesFile =
            toml::from_str(text).map_err(|error| RulesError::Form(file.to_owned(), Box::new(error)))?;
        let rule = |entry: RuleEntry| {
            let path = TreePath::parse(&entry.path);
            let path = path.map_err(|error| RulesError::Path(file.to_owned(), entry.path, error))?;
            Ok(Rule { path, users: entry.users, may: entry.may })
        };
        let rules = read.rule.into_iter().map(rule).collect::<Result<_, _>>()?;
        Ok(Rules { default: read.default.unwrap_or(May::Write), rules, is_read_only: false })
    }

    /// The paths of all rules.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn paths(&self) -> impl Iterator<Item = &TreePath> {
        self.rules.iter().map(|rule| &rule.path)
    }

    /// Lets no one write.
    pub fn read_only(mut self) -> Rules {
        self.is_read_only = true;
        self
    }

    /// The rights of a user at a path.
    pub fn may(&self, user: &str, path: &TreePath) -> May {
        let fitting = self.rules.iter().filter(|rule| rule.is_for(user) && path.is_in(&rule.path));
        let found = fitting.max_by_key(|rule| (rule.path.as_bytes().len(), !rule.users.is_empty()));
        self.limited(found.map_or(self.default, |rule| rule.may))
    }

    /// The least right of a user at a path and everywhere below.
    pub fn may_all(&self, user: &str, path: &TreePath) -> May {
        let below = self.rules.iter().filter(|rule| rule.is_for(user) && rule.path.is_in(path));
        let least = below.map(|rule| self.may(user, &rule.path)).min();
        self.may(user, path).min(least.unwrap_or(May::Write))
    }

    fn limited(&self, may: May) -> May {
        if self.is_read_only { may.min(May::Read) } else { may }
    }
}

impl Rule {
    fn is_for(&self, user: &str) -> bool {
        self.users.is_empty() || self.users.iter().any(|name| name == user)
    }
}

impl fmt::Display for May {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            May::Nothing => "nothing",
            May::Read => "read",
            May::Write => "write",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{May, Rules, RulesError};
    use crate::path::TreePath;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text).expect("a path")
    }

    #[test]
    fn the_longest_path_counts_and_then_the_name() {
        let text = r#"
            default = "read"
            [[rule]]
            path = "/photos"
            users = ["ann"]
            may = "write"
            [[rule]]
            path = "/photos"
            may = "nothing"
            [[rule]]
            path = "/photos/shared"
            may = "read"
        "#;
        let rules = Rules::parse(text, Path::new("rules.toml")).expect("rules");
        assert_eq!(rules.may("ann", &path("/notes")), May::Read);
        assert_eq!(rules.may("ann", &path("/photos/1.jpg")), May::Write);
        assert_eq!(rules.may("bob", &path("/photos/1.jpg")), May::Nothing);
        assert_eq!(rules.may("bob", &path("/photosets")), May::Read);
        assert_eq!(rules.may("bob", &path("/photos/shared/2.jpg")), May::Read);
        // Ann may not move the whole directory, because a part of it is only readable.
        assert_eq!(
            (rules.may("ann", &path("/photos")), rules.may_all("ann", &path("/photos"))),
            (May::Write, May::Read)
        );
        assert_eq!(rules.read_only().may("ann", &path("/photos")), May::Read);
    }

    #[test]
    fn a_mistake_in_the_file_is_named() {
        let error = |text| Rules::parse(text, Path::new("rules.toml")).expect_err(text);
        assert!(matches!(error("defualt = \"read\""), RulesError::Form(..)));
        assert!(error("[[rule]]\npath = \"/a/../b\"\nmay = \"read\"").to_string().contains("/a/../b"));
        assert!(error("[[rule]]\npath = \"/a\"\nmay = \"all\"").to_string().contains("nothing"));
    }
}
