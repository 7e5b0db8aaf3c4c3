//! From `async fn name() -> T { … }` to a plain function that runs it.

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

use crate::options::{Options, Problem};

/// Which attribute is being expanded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Main,
    Test,
}

/// The whole expansion. A problem becomes one compile error at its place; what can still be expanded is, so that it
/// does not bring others with it ("`main` is not allowed to be `async`").
pub(crate) fn expand(options: TokenStream, item: TokenStream, kind: Kind) -> TokenStream {
    let function = match Function::parse(item.clone(), kind) {
        Ok(function) => function,
        Err(problem) => {
            let mut tokens = compile_error(&problem);
            tokens.extend(item);
            return tokens;
        }
    };
    match Options::parse(options) {
        Ok(options) => function.write(&options, kind),
        Err(problem) => {
            let mut tokens = compile_error(&problem);
            tokens.extend(function.write(&Options::default(), kind));
            tokens
        }
    }
}

/// The parts of the annotated function.
struct Function {
    /// Attributes and visibility, everything before `async`.
    head: Vec<TokenTree>,
    name: Ident,
    /// Everything after the parentheses and before the body: the arrow and the return type, if any.
    result: Vec<TokenTree>,
    body: Group,
}

impl Function {
    fn parse(item: TokenStream, kind: Kind) -> Result<Function, Problem> {
        let mut tokens = item.into_iter().peekable();
        let mut head = Vec::new();
        while let Some(token) = tokens.next_if(|token| !is_word(token, "async") && !is_word(token, "fn")) {
            head.push(token);
        }
        match tokens.next() {
            Some(token) if is_word(&token, "async") => {}
            Some(token) => {
                return Err(Problem::new(token.span(), "this function must be `async`: write `async fn`"));
            }
            None => {
                return Err(Problem::new(Span::call_site(), "this attribute belongs on an `async fn`"));
            }
        }
        match tokens.next() {
            Some(token) if is_word(&token, "fn") => {}
            _ => {
                return Err(Problem::new(Span::call_site(), "this attribute belongs on a plain `async fn`"));
            }
        }
        let Some(TokenTree::Ident(name)) = tokens.next() else {
            return Err(Problem::new(Span::call_site(), "this attribute belongs on an `async fn` with a name"));
        };
        if kind == Kind::Main && name.to_string() != "main" {
            let message =
                "`#[dapple::main]` starts the program and belongs on `main`; elsewhere use `dapple::block_on`";
            return Err(Problem::new(name.span(), message));
        }
        match tokens.next() {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
                if !group.stream().is_empty() {
                    return Err(Problem::new(group.span(), "nobody could pass arguments here: take none"));
                }
            }
            _ => {
                return Err(Problem::new(
                    name.span(),
                    "this function cannot be generic: nobody could choose the types",
                ));
            }
        }
        let mut result: Vec<TokenTree> = tokens.collect();
        match result.pop() {
            Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => {
                Ok(Function { head, name, result, body })
            }
            _ => Err(Problem::new(name.span(), "this function needs a body")),
        }
    }

    /// Writes the plain function around the asynchronous one, which keeps its own tokens and so its own error places.
    fn write(self, options: &Options, kind: Kind) -> TokenStream {
        let workers: TokenStream = match (&options.workers, kind) {
            (Some(workers), _) => [word("Some"), parentheses(TokenStream::from(workers.clone()))].into_iter().collect(),
            (None, Kind::Test) => "Some(2)".parse().expect("tokens written by hand"),
            (None, Kind::Main) => "None".parse().expect("tokens written by hand"),
        };
        let mut inner: Vec<TokenTree> = vec![word("async"), word("fn"), self.name.clone().into()];
        inner.push(parentheses(TokenStream::new()));
        inner.extend(self.result.iter().cloned());
        inner.push(self.body.into());

        let mut arguments = workers;
        arguments.extend([punct(','), self.name.clone().into(), parentheses(TokenStream::new())]);
        let mut block: TokenStream = inner.into_iter().collect();
        block.extend("::dapple::run_main".parse::<TokenStream>().expect("tokens written by hand"));
        block.extend([parentheses(arguments)]);

        let mut outer = TokenStream::new();
        if kind == Kind::Test {
            outer.extend("#[::core::prelude::v1::test]".parse::<TokenStream>().expect("tokens written by hand"));
        }
        outer.extend(self.head);
        outer.extend([word("fn"), self.name.into(), parentheses(TokenStream::new())]);
        outer.extend(self.result);
        outer.extend([TokenTree::from(Group::new(Delimiter::Brace, block))]);
        outer
    }
}

fn is_word(token: &TokenTree, text: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == text)
}

fn word(text: &str) -> TokenTree {
    Ident::new(text, Span::call_site()).into()
}

fn punct(character: char) -> TokenTree {
    Punct::new(character, Spacing::Alone).into()
}

fn parentheses(stream: TokenStream) -> TokenTree {
    Group::new(Delimiter::Parenthesis, stream).into()
}

/// `::core::compile_error! { "…" }` at the place of the problem.
fn compile_error(problem: &Problem) -> TokenStream {
    let spanned = |mut token: TokenTree| {
        token.set_span(problem.span);
        token
    };
    let message = TokenTree::from(Literal::string(&problem.message));
    [
        spanned(word("compile_error")),
        spanned(punct('!')),
        spanned(Group::new(Delimiter::Brace, TokenStream::from(spanned(message))).into()),
    ]
    .into_iter()
    .collect()
}
