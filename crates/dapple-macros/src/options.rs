//! What stands in the attribute's parentheses: `workers = N`.

use proc_macro::{Span, TokenStream, TokenTree};

/// The options of one attribute.
#[derive(Default)]
pub(crate) struct Options {
    /// `workers = N`, as it was written; `None` when nothing was said.
    pub(crate) workers: Option<TokenTree>,
}

/// A compile error: where, and a sentence that says what to do.
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
    pub(crate) fn parse(tokens: TokenStream) -> Result<Options, Problem> {
        let mut options = Options::default();
        let mut tokens = tokens.into_iter();
        while let Some(name) = tokens.next() {
            if name.to_string() != "workers" {
                let message = format!("unknown option `{name}`; the only one is `workers = N`");
                return Err(Problem::new(name.span(), message));
            }
            if options.workers.is_some() {
                return Err(Problem::new(name.span(), "`workers` is given twice; keep one"));
            }
            match tokens.next() {
                Some(TokenTree::Punct(punct)) if punct.as_char() == '=' => {}
                _ => {
                    return Err(Problem::new(name.span(), "write `workers = N`, for example `workers = 2`"));
                }
            }
            options.workers = Some(workers(tokens.next(), name.span())?);
            match tokens.next() {
                None => break,
                Some(TokenTree::Punct(punct)) if punct.as_char() == ',' => {}
                Some(other) => {
                    return Err(Problem::new(other.span(), "expected a comma or the end"));
                }
            }
        }
        Ok(options)
    }
}

/// A number of workers: a literal from 1 up.
fn workers(value: Option<TokenTree>, name: Span) -> Result<TokenTree, Problem> {
    let Some(value) = value else {
        return Err(Problem::new(name, "write a number after `workers =`, for example `workers = 2`"));
    };
    match value.to_string().replace('_', "").parse::<usize>() {
        Ok(0) => Err(Problem::new(value.span(), "a runtime needs at least one worker")),
        Ok(_) => Ok(value),
        Err(_) => {
            let message =
                format!("`workers` is a plain number such as 2, not `{value}`; to compute it, use `dapple::builder()`");
            Err(Problem::new(value.span(), message))
        }
    }
}
