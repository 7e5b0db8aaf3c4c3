//! The attribute's options: `workers = N`, `tokio`, and for tests `clock = "real"` and `limit_s = N`, or `sim` and `seeds = N`.

use proc_macro::token_stream::IntoIter;
use proc_macro::{Span, TokenStream, TokenTree};

use crate::expand::Kind;

/// The options of one attribute, as written; `None` if absent.
#[derive(Default)]
pub(crate) struct Options {
    /// `workers = N`.
    pub(crate) workers: Option<TokenTree>,
    /// `tokio`, which has no value.
    pub(crate) has_tokio: bool,
    /// `clock = "real"` or `clock = "standing"`: whether it is the latter.
    pub(crate) standing_clock: Option<bool>,
    /// `limit_s = N`.
    pub(crate) limit_s: Option<TokenTree>,
    /// `sim`, which has no value.
    pub(crate) is_simulated: bool,
    /// `seeds = N`.
    pub(crate) seeds: Option<TokenTree>,
}

/// A compile error: its place, and a sentence that says what to do.
pub(crate) struct Problem {
    pub(crate) span: Span,
    pub(crate) message: String,
}

impl Problem {
    pub(crate) fn new(span: Span, message: impl Into<String>) -> Problem {
        Problem { span, message: message.into() }
    }
}

impl Options {
    /// Reads the options, each at most once, separated by commas.
    pub(crate) fn parse(tokens: TokenStream, kind: Kind) -> Result<Options, Problem> {
        let mut options = Options::default();
        let mut tokens = tokens.into_iter();
        let mut names: Vec<TokenTree> = Vec::new();
        while let Some(name) = tokens.next() {
            let example = example(&name.to_string(), kind).ok_or_else(|| unknown(&name, kind))?;
            if options.has(&name.to_string()) {
                return Err(Problem::new(name.span(), format!("`{name}` is given twice; keep one")));
            }
            match name.to_string().as_str() {
                "tokio" => options.has_tokio = true,
                "sim" => options.is_simulated = true,
                _ => options.set(&name, &mut tokens, example)?,
            }
            names.push(name);
            match tokens.next() {
                None => break,
                Some(TokenTree::Punct(punct)) if punct.as_char() == ',' => {}
                Some(other) => {
                    return Err(Problem::new(other.span(), "expected a comma or the end"));
                }
            }
        }
        names.iter().try_for_each(|name| options.go_with(name))?;
        Ok(options)
    }

    /// A simulation has options of its own: its seed decides everything else.
    fn go_with(&self, name: &TokenTree) -> Result<(), Problem> {
        let text = name.to_string();
        match (self.is_simulated, text.as_str()) {
            (true, "sim" | "seeds") => Ok(()),
            (true, _) => {
                let message = format!(
                    "`{text}` does not go with `sim`: the seed decides the workers, and the clock is simulated"
                );
                Err(Problem::new(name.span(), message))
            }
            (false, "seeds") => Err(Problem::new(name.span(), "`seeds` goes with `sim`: write `sim, seeds = 1000`")),
            (false, _) => Ok(()),
        }
    }

    fn has(&self, name: &str) -> bool {
        match name {
            "workers" => self.workers.is_some(),
            "tokio" => self.has_tokio,
            "clock" => self.standing_clock.is_some(),
            "sim" => self.is_simulated,
            "seeds" => self.seeds.is_some(),
            _ => self.limit_s.is_some(),
        }
    }

    /// Reads the `= VALUE` after the name of an option that has one.
    fn set(&mut self, name: &TokenTree, tokens: &mut IntoIter, example: &str) -> Result<(), Problem> {
        match tokens.next() {
            Some(TokenTree::Punct(punct)) if punct.as_char() == '=' => {}
            _ => {
                return Err(Problem::new(name.span(), format!("write a value, for example `{example}`")));
            }
        }
        let Some(value) = tokens.next() else {
            let message = format!("write a value after `{name} =`, for example `{example}`");
            return Err(Problem::new(name.span(), message));
        };
        match name.to_string().as_str() {
            "workers" => self.workers = Some(workers(value)?),
            "clock" => self.standing_clock = Some(is_standing(&value)?),
            "seeds" => self.seeds = Some(seeds(value)?),
            _ => self.limit_s = Some(limit_s(value)?),
        }
        Ok(())
    }
}

/// An example of an option; `None` if this attribute does not have it.
fn example(name: &str, kind: Kind) -> Option<&'static str> {
    match (name, kind) {
        ("workers", _) => Some("workers = 2"),
        ("tokio", _) => Some("tokio"),
        ("clock", Kind::Test) => Some("clock = \"real\""),
        ("limit_s", Kind::Test) => Some("limit_s = 60"),
        ("sim", Kind::Test) => Some("sim"),
        ("seeds", Kind::Test) => Some("seeds = 1000"),
        _ => None,
    }
}

fn unknown(name: &TokenTree, kind: Kind) -> Problem {
    let known = match kind {
        Kind::Main => "there are `workers = N` and `tokio`",
        Kind::Test => {
            "there are `workers = N`, `tokio`, `clock = \"real\"` and `limit_s = N`, or `sim` and `seeds = N`"
        }
    };
    Problem::new(name.span(), format!("unknown option `{name}`; {known}"))
}

/// A number of workers: a literal from 1 up.
fn workers(value: TokenTree) -> Result<TokenTree, Problem> {
    match number(&value) {
        Some(0) => Err(Problem::new(value.span(), "a runtime needs at least one worker")),
        Some(_) => Ok(value),
        None => {
            let message =
                format!("`workers` is a plain number such as 2, not `{value}`; to compute it, use `dapple::builder()`");
            Err(Problem::new(value.span(), message))
        }
    }
}

/// Whether the clock can stand still, or is the real one.
fn is_standing(value: &TokenTree) -> Result<bool, Problem> {
    match value.to_string().as_str() {
        "\"standing\"" => Ok(true),
        "\"real\"" => Ok(false),
        _ => {
            let message = format!("`clock` is \"standing\" (the default) or \"real\", not `{value}`");
            Err(Problem::new(value.span(), message))
        }
    }
}

/// Seconds of real time: a literal from 1 up.
fn limit_s(value: TokenTree) -> Result<TokenTree, Problem> {
    match number(&value) {
        Some(seconds) if seconds > 0 => Ok(value),
        _ => {
            let message = format!("`limit_s` is a whole number of seconds from 1 up, not `{value}`");
            Err(Problem::new(value.span(), message))
        }
    }
}

/// How many seeds: a literal from 1 up.
fn seeds(value: TokenTree) -> Result<TokenTree, Problem> {
    match number(&value) {
        Some(seeds) if seeds > 0 => Ok(value),
        _ => Err(Problem::new(value.span(), format!("`seeds` is a whole number from 1 up, not `{value}`"))),
    }
}

fn number(value: &TokenTree) -> Option<u64> {
    value.to_string().replace('_', "").parse().ok()
}
