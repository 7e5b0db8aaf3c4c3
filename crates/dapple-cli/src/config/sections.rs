//! The tables of the file, which hold settings that a flag cannot express.

use serde::de::{DeserializeOwned, IntoDeserializer};
use toml::Spanned;
use toml::de::DeTable;

use super::nearest::nearest;
use super::problem::{Problems, Source};

/// The content of the file other than options. Empty without a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sections {
    file: Option<Source>,
    /// The keys that are options and have been read.
    options: Vec<String>,
}

impl Sections {
    pub(crate) fn new(file: Source, options: Vec<String>) -> Sections {
        Sections { file: Some(file), options }
    }

    /// Whether there is a file.
    pub(crate) fn is_any(&self) -> bool {
        self.file.is_some()
    }

    /// Reads the tables as `T`: a struct with `deny_unknown_fields` and a field for every table,
    /// none of them required.
    ///
    /// # Errors
    ///
    /// The place of a key or value that `T` does not take.
    pub(crate) fn read<T: DeserializeOwned + Default>(&self) -> Result<T, Problems> {
        let Some(file) = &self.file else { return Ok(T::default()) };
        let read = DeTable::parse(file.text()).and_then(|document| {
            let span = document.span();
            let entries = document.into_inner().into_iter();
            let tables: DeTable<'_> = entries.filter(|(key, _)| !self.is_option(key.get_ref())).collect();
            T::deserialize(Spanned::new(span, tables).into_deserializer())
        });
        read.map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            Problems(vec![file.problem(span, self.advice(error.message()))])
        })
    }

    fn is_option(&self, name: &str) -> bool {
        self.options.iter().any(|option| option == name)
    }

    /// serde's message, with the name that was probably meant.
    fn advice(&self, message: &str) -> String {
        let message = message.trim_end().replace('\n', ", ");
        let Some(unknown) = message.strip_prefix("unknown field `") else { return message };
        let mut names = unknown.split('`').step_by(2);
        let name = names.next().unwrap_or_default();
        let known = unknown.split('`').skip(2).step_by(2).chain(self.options.iter().map(String::as_str));
        match nearest(name, known) {
            Some(near) => format!("there is no `{name}` here; did you mean `{near}`?"),
            None => {
                let expected = message.split_once(", ").map_or("", |(_, expected)| expected);
                // This command's file has only options.
                let expected = expected.replace("there are no fields", "the file has no tables");
                format!("there is no `{name}` here; {expected}")
            }
        }
    }
}
