//! Options in the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use super::layer::{Layer, Origin};
use super::option::{self, COMMAND_LINE_ONLY, CONFIG, Options};
use super::problem::Problem;

/// The variables of one command, without their prefix and in lower case. Empty variables count as
/// unset.
pub(crate) struct Variables {
    prefix: String,
    values: BTreeMap<String, OsString>,
}

impl Variables {
    /// Collects the variables of the command `name`.
    pub(crate) fn of(name: &str, all: impl Iterator<Item = (OsString, OsString)>) -> Variables {
        let prefix = format!("DAPPLE_{}_", name.to_uppercase().replace('-', "_"));
        let values = all.filter_map(|(name, value)| {
            let name = name.to_str()?.strip_prefix(&prefix)?.to_lowercase();
            (!value.is_empty()).then_some((name, value))
        });
        Variables { values: values.collect(), prefix }
    }

    /// The configuration file, if a variable names one.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        self.values.get(CONFIG).map(PathBuf::from)
    }

    /// Gives the layer the values of the variables.
    pub(crate) fn read(&self, options: &Options, layer: &mut Layer, problems: &mut Vec<Problem>) {
        for arg in options.all() {
            let Some((name, value)) = option::names(arg).find_map(|name| self.values.get_key_value(&name)) else {
                continue;
            };
            let variable = self.full_name(name);
            let outcome = match value.to_str() {
                None => Err("the value is not UTF-8; give such a path on the command line".to_owned()),
                Some(value) => {
                    let values: Vec<String> = match option::is_list(arg) {
                        true => value.split(',').map(|value| value.trim().to_owned()).collect(),
                        false => vec![value.to_owned()],
                    };
                    let checked = options.check(arg, &values);
                    checked.and_then(|()| layer.give(options, arg, values, Origin::Variable(variable.clone())))
                }
            };
            if let Err(message) = outcome {
                problems.push(Problem::variable(&variable, value, message));
            }
        }
        layer.next_source(options);
    }

    /// The full names of variables that match no option. They are not an error: Kubernetes sets
    /// such variables for a service that has the command's name.
    pub(crate) fn unknown(&self, options: &Options) -> Vec<String> {
        let is_known = |name: &str| COMMAND_LINE_ONLY.contains(&name) || options.find(name).is_some();
        self.values.keys().filter(|name| !is_known(name)).map(|name| self.full_name(name)).collect()
    }

    fn full_name(&self, name: &str) -> String {
        format!("{}{}", self.prefix, name.to_uppercase())
    }
}
