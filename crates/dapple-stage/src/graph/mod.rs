//! The graph of stages: nodes and flows, as text or as a drawing with live queue lengths.
//!
//! With [`from_arguments`], one line lets a program take `--graph FILE`.

mod file;
mod svg;
mod text;
mod view;

use std::fmt;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use dapple_tower::switch::{Mutex, lock};
use tower_service::Service;

use self::view::{Link, View};
use crate::stage::StageStats;

pub use self::file::{Kept, from_arguments};

/// Stages and the flows between them. From a first stage, the graph itself finds stages that were
/// joined with `then` or replicated.
///
/// A graph does not keep stages alive; it stops showing stages that were dropped. Clones are the
/// same graph.
///
/// ```
/// use dapple_stage::{Stage, graph::Graph};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// let _entered = runtime.enter();
/// let parse = Stage::builder("parse").queue_len_max(10).width(2).wrap_sync(|text: &str| text.len());
/// let store = Stage::builder("store").wrap_sync(|_length: usize| ());
/// let pipeline = parse.then(store);
///
/// let graph = Graph::new();
/// graph.add(&pipeline);
/// let text = graph.to_string();
/// assert!(text.contains("parse  0 of 10 wait  0 of 2 in service"), "{text}");
/// assert!(text.contains("then → store"));
/// assert!(graph.to_svg().starts_with("<svg"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Graph {
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    roots: Vec<Weak<dyn Node>>,
    links: Vec<Link<Weak<dyn Node>>>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Adds a stage and everything that it sends to.
    pub fn add(&self, node: &impl Linked) {
        let node = node.node();
        let mut known = lock(&self.known);
        known.roots.retain(|root| root.strong_count() > 0);
        if !known.roots.iter().any(|root| is_same(root, &node)) {
            known.roots.push(Arc::downgrade(&node));
        }
    }

    /// Adds a flow from `from` to `to` that the graph cannot find itself, labeled `how`.
    pub fn link(&self, from: &impl Linked, to: &impl Linked, how: &'static str) {
        let (from, to) = (from.node(), to.node());
        let mut known = lock(&self.known);
        known.links.retain(|(from, to, _)| from.strong_count() > 0 && to.strong_count() > 0);
        known.links.push((Arc::downgrade(&from), Arc::downgrade(&to), how));
    }

    /// The current graph as a drawing. Names are escaped.
    pub fn to_svg(&self) -> String {
        svg::draw(&self.view())
    }

    fn view(&self) -> View {
        let known = lock(&self.known);
        let roots: Vec<_> = known.roots.iter().filter_map(Weak::upgrade).collect();
        let links = known.links.iter().filter_map(|(from, to, how)| Some((from.upgrade()?, to.upgrade()?, *how)));
        let links = links.collect();
        drop(known);
        View::new(roots, links)
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(&self.view(), f)
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view();
        f.debug_struct("Graph").field("nodes", &view.nodes.len()).field("links", &view.links.len()).finish()
    }
}

/// A node of a graph: it has a name, numbers, and the nodes that it sends to.
pub trait Node: Send + Sync {
    /// Its name.
    fn name(&self) -> String;

    /// Its numbers; `None` for nodes without numbers, such as an operator without a queue.
    fn stats(&self) -> Option<StageStats>;

    /// The nodes that it sends to, each with a label.
    fn links(&self) -> Vec<(Arc<dyn Node>, &'static str)>;
}

/// A type that has a node in a graph. [`named`] makes one of any service.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no name in a graph of stages",
    note = "give it one: `dapple_stage::graph::named(\"its name\", service)`"
)]
pub trait Linked {
    /// Its node.
    fn node(&self) -> Arc<dyn Node>;
}

/// A service with a name, so that stages can send to it and graphs show it.
///
/// ```
/// use dapple_stage::{Stage, graph::named};
/// # use std::task::{Context, Poll};
/// # #[derive(Clone)]
/// # struct Database;
/// # impl tower_service::Service<u32> for Database {
/// #     type Response = u32;
/// #     type Error = std::io::Error;
/// #     type Future = std::future::Ready<std::io::Result<u32>>;
/// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> { Poll::Ready(Ok(())) }
/// #     fn call(&mut self, n: u32) -> Self::Future { std::future::ready(Ok(n)) }
/// # }
/// # let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// let lookup = Stage::builder("parse").wrap_sync(|text: &str| text.len() as u32).then(named("database", Database));
/// assert_eq!(runtime.block_on(lookup.ask("four")).unwrap(), 4);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn named<S>(name: impl Into<String>, service: S) -> Named<S> {
    Named { service, node: Arc::new(NameOnly(name.into())) }
}

/// See [`named`].
#[derive(Clone)]
pub struct Named<S> {
    service: S,
    node: Arc<NameOnly>,
}

struct NameOnly(String);

impl Node for NameOnly {
    fn name(&self) -> String {
        self.0.clone()
    }

    fn stats(&self) -> Option<StageStats> {
        None
    }

    fn links(&self) -> Vec<(Arc<dyn Node>, &'static str)> {
        Vec::new()
    }
}

impl<S> Linked for Named<S> {
    fn node(&self) -> Arc<dyn Node> {
        self.node.clone()
    }
}

impl<S: Service<Req>, Req> Service<Req> for Named<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> S::Future {
        self.service.call(request)
    }
}

impl<S> fmt::Debug for Named<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Named").field(&self.node.0).finish()
    }
}

/// The targets of a node. Does not keep them alive.
#[derive(Default)]
pub(crate) struct Links(Mutex<Vec<(Weak<dyn Node>, &'static str)>>);

impl Links {
    /// Adds a link, once.
    pub(crate) fn add(&self, to: &Arc<dyn Node>, how: &'static str) {
        let mut links = lock(&self.0);
        links.retain(|(node, _)| node.strong_count() > 0);
        if !links.iter().any(|(node, known)| is_same(node, to) && *known == how) {
            links.push((Arc::downgrade(to), how));
        }
    }

    pub(crate) fn all(&self) -> Vec<(Arc<dyn Node>, &'static str)> {
        lock(&self.0).iter().filter_map(|(node, how)| Some((node.upgrade()?, *how))).collect()
    }
}

fn is_same(one: &Weak<dyn Node>, other: &Arc<dyn Node>) -> bool {
    std::ptr::addr_eq(one.as_ptr(), Arc::as_ptr(other))
}
