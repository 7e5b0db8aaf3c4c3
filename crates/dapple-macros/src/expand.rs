//! Turns `async fn name() -> T { … }` into a plain function that runs it.

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

use crate::options::{Options, Problem};

/// The attribute that is being expanded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Main,
    Test,
}

/// The whole expansion. A mistake becomes one compile error at its place. The rest is still
/// expanded, to avoid follow-up errors ("`main` is not allowed to be `async`").
pub(crate) fn expand(options: TokenStream, item: TokenStream, kind: Kind) -> TokenStream {
    let options = Options::parse(options, kind);
    let is_simulated = options.as_ref().is_ok_and(|options| options.is_simulated);
    let function = match Function::parse(item.clone(), kind, is_simulated) {
        Ok(function) => function,
        Err(problem) => {
            let mut tokens = compile_error(&problem);
            tokens.extend(item);
            return tokens;
        }
    };
    match options {
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
    /// Attributes and visibility, everything before `async` or `fn`.
    head: Vec<TokenTree>,
    /// Not so for a scenario.
    is_async: bool,
    name: Ident,
    /// The simulation that a scenario takes, with its parentheses; otherwise nothing is in these.
    arguments: Group,
    /// Everything after the parentheses and before the body: the arrow and the return type, if any.
    result: Vec<TokenTree>,
    body: Group,
}

impl Function {
    fn parse(item: TokenStream, kind: Kind, is_simulated: bool) -> Result<Function, Problem> {
        let mut tokens = item.into_iter().peekable();
        let mut head = Vec::new();
        while let Some(token) = tokens.next_if(|token| !is_word(token, "async") && !is_word(token, "fn")) {
            head.push(token);
        }
        let is_async = tokens.next_if(|token| is_word(token, "async")).is_some();
        match tokens.peek() {
            Some(token) if !is_async && !is_simulated => {
                return Err(Problem::new(token.span(), "this function must be `async`: write `async fn`"));
            }
            None if !is_async => {
                return Err(Problem::new(Span::call_site(), "this attribute belongs on an `async fn`"));
            }
            _ => {}
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
        let arguments = match tokens.next() {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
                match (is_async, group.stream().is_empty()) {
                    (true, false) => {
                        return Err(Problem::new(group.span(), "no caller could pass arguments here: take none"));
                    }
                    (false, true) => {
                        let message = "a scenario takes the simulation: write `(sim: &mut Simulation)`, or `async fn` for one host";
                        return Err(Problem::new(group.span(), message));
                    }
                    _ => group,
                }
            }
            _ => {
                return Err(Problem::new(
                    name.span(),
                    "this function cannot be generic: no caller could choose the types",
                ));
            }
        };
        let mut result: Vec<TokenTree> = tokens.collect();
        match result.pop() {
            Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => {
                Ok(Function { head, is_async, name, arguments, result, body })
            }
            _ => Err(Problem::new(name.span(), "this function needs a body")),
        }
    }

    /// Writes the plain function around the asynchronous one, which keeps its own tokens and so its
    /// own error places.
    fn write(self, options: &Options, kind: Kind) -> TokenStream {
        let mut inner: Vec<TokenTree> = if self.is_async { vec![word("async")] } else { Vec::new() };
        inner.extend([word("fn"), self.name.clone().into(), self.arguments.clone().into()]);
        inner.extend(self.result.iter().cloned());
        inner.push(self.body.clone().into());

        let mut block: TokenStream = inner.into_iter().collect();
        let mut outer = TokenStream::new();
        let result = match kind {
            Kind::Main => {
                block.extend(self.call_of_main(options));
                self.result
            }
            Kind::Test if options.is_simulated => {
                outer.extend(tokens("#[::core::prelude::v1::test]"));
                block.extend(self.call_of_simulation(options));
                block.extend(tokens(";"));
                Vec::new()
            }
            Kind::Test => {
                outer.extend(tokens("#[::core::prelude::v1::test]"));
                block.extend(self.call_of_test(options));
                // For a test that returns a value, only the report leaves its thread. The harness
                // needs nothing else of one with `should_panic`.
                match self.returns_nothing() {
                    true => {
                        block.extend(tokens(";"));
                        Vec::new()
                    }
                    false => tokens("-> ::std::process::ExitCode").into_iter().collect(),
                }
            }
        };
        outer.extend(self.head);
        outer.extend([word("fn"), self.name.into(), parentheses(TokenStream::new())]);
        outer.extend(result);
        outer.extend([TokenTree::from(Group::new(Delimiter::Brace, block))]);
        outer
    }

    /// `::dapple::run_main(Some(N), None, main())`.
    fn call_of_main(&self, options: &Options) -> TokenStream {
        let mut arguments = option(options.workers.as_ref());
        arguments.extend([punct(',')]);
        arguments.extend(context(options));
        arguments.extend([punct(','), self.name.clone().into(), parentheses(TokenStream::new())]);
        let mut call = tokens("::dapple::run_main");
        call.extend([parentheses(arguments)]);
        call
    }

    /// `::dapple::testing::run(Options { … }, name)`. A test has two workers by default, so that
    /// concurrency is tested, too.
    fn call_of_test(&self, options: &Options) -> TokenStream {
        let mut fields = tokens("workers:");
        fields.extend(options.workers.clone().map_or_else(|| tokens("2"), TokenStream::from));
        // tokio's timers go by the real clock.
        let clock = options.standing_clock.unwrap_or(!options.has_tokio);
        fields.extend(tokens(&format!(", standing_clock: {clock}, limit_s:")));
        fields.extend(option(options.limit_s.as_ref()));
        fields.extend(tokens(", context:"));
        fields.extend(context(options));
        let mut arguments = tokens("::dapple::testing::Options");
        arguments.extend([TokenTree::from(Group::new(Delimiter::Brace, fields))]);
        arguments.extend([punct(','), self.name.clone().into()]);
        let mut call = tokens("::dapple::testing::run");
        call.extend([parentheses(arguments)]);
        call
    }

    /// `::dapple::__simulate!("name", N, scenario)`, with the function as the program of one host, unless it is the scenario.
    fn call_of_simulation(&self, options: &Options) -> TokenStream {
        let name = &self.name;
        let seeds = options.seeds.as_ref().map_or_else(|| SEEDS.to_owned(), ToString::to_string);
        let scenario = match (self.is_async, self.returns_nothing()) {
            (false, _) => name.to_string(),
            (true, true) => format!("|sim| sim.client(\"client\", {name})"),
            (true, false) => {
                let program =
                    format!("|| async {{ if let Err(error) = {name}().await {{ panic!(\"{{error:?}}\") }} }}");
                format!("|sim| sim.client(\"client\", {program})")
            }
        };
        tokens(&format!("::dapple::__simulate!(concat!(module_path!(), \"::{name}\"), {seeds}, {scenario})"))
    }

    /// Whether the function has no result, or `()`.
    fn returns_nothing(&self) -> bool {
        let result: TokenStream = self.result.iter().cloned().collect();
        result.is_empty() || result.to_string().replace(' ', "") == "->()"
    }
}

fn is_word(token: &TokenTree, text: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == text)
}

/// Parses tokens written here, which have no errors.
fn tokens(text: &str) -> TokenStream {
    text.parse().expect("tokens written by hand")
}

/// `Some(value)` or `None`.
fn option(value: Option<&TokenTree>) -> TokenStream {
    match value {
        None => tokens("::core::option::Option::None"),
        Some(value) => {
            let mut some = tokens("::core::option::Option::Some");
            some.extend([parentheses(TokenStream::from(value.clone()))]);
            some
        }
    }
}

/// Wraps the runtime in tokio's context. A macro, so that a build without the feature says which one is missing.
fn context(options: &Options) -> TokenStream {
    match options.has_tokio {
        true => tokens("::core::option::Option::Some(::dapple::__tokio_context!())"),
        false => option(None),
    }
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

/// Seeds of a simulation, if the program does not say.
const SEEDS: &str = "100";
