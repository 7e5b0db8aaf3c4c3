//! Registers stages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use dapple_io::net::Listener;
use dapple_stage::Stage;
use dapple_stage::graph::{Graph, named};
use dapple_tower::BoxError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_service::Service;

use super::limits::Gauges;
use super::registered::{Registration, Typed};
use super::staged::Staged;
use super::{Host, HostLimits, Report, Shared, Stopper};
use crate::function::Function;

/// Stages by name; see [`Host::builder`]. Registering a name again replaces the stage.
pub struct HostBuilder {
    pub(crate) stages: BTreeMap<String, Box<dyn Registration>>,
    graph: Graph,
    /// The names of stages that add themselves to the graph.
    drawn: BTreeSet<String>,
    limits: HostLimits,
    replicas: usize,
    #[cfg(feature = "tls")]
    tls: Option<dapple_tls::TlsAcceptor>,
}

impl HostBuilder {
    pub(super) fn new() -> HostBuilder {
        HostBuilder {
            stages: BTreeMap::new(),
            graph: Graph::new(),
            drawn: BTreeSet::new(),
            limits: HostLimits::default(),
            replicas: 1,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Registers a service under this name. Its clones are one stage: if they share a queue or
    /// state, so do all requests.
    #[must_use]
    pub fn register<Req, S>(self, name: impl Into<String>, service: S) -> Self
    where
        S: Service<Req> + Clone + Send + 'static,
        S::Response: Serialize + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        Req: DeserializeOwned + Send + 'static,
    {
        self.register_with(name, move |_| service.clone())
    }

    /// Registers a [`Stage`] under this name. The time that a request has left is a deadline in its
    /// queue, too.
    #[must_use]
    pub fn register_stage<Req, Resp, E>(self, name: impl Into<String>, stage: Stage<Req, Resp, E>) -> Self
    where
        E: Into<BoxError> + Send + 'static,
        Req: DeserializeOwned + Send + 'static,
        Resp: Serialize + Send + 'static,
    {
        self.register_stages(name, move |_| stage.clone())
    }

    /// As [`register_stage`](Self::register_stage), with a stage of its own for each
    /// [replica](Self::replicas); `make` gets the replica's number. It runs in
    /// [`build`](Self::build), where the host's runtime is current.
    #[must_use]
    pub fn register_stages<Req, Resp, E>(
        self,
        name: impl Into<String>,
        make: impl Fn(usize) -> Stage<Req, Resp, E> + Send + 'static,
    ) -> Self
    where
        E: Into<BoxError> + Send + 'static,
        Req: DeserializeOwned + Send + 'static,
        Resp: Serialize + Send + 'static,
    {
        let (name, graph) = (name.into(), self.graph.clone());
        let mut registered = self.register_with(name.clone(), move |replica| {
            let stage = make(replica);
            graph.add(&stage);
            Staged(stage)
        });
        registered.drawn.insert(name);
        registered
    }

    /// Registers an async function under this name.
    #[must_use]
    pub fn register_fn<Req, Resp, F, Fut, E>(self, name: impl Into<String>, function: F) -> Self
    where
        F: FnMut(Req) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<Resp, E>> + Send + 'static,
        E: Into<BoxError> + 'static,
        Req: DeserializeOwned + Send + 'static,
        Resp: Serialize + Send + 'static,
    {
        self.register(name, Function::new(function))
    }

    /// Registers the services that `make` makes under this name: one for each
    /// [replica](Self::replicas), given its number. It runs in [`build`](Self::build).
    #[must_use]
    pub fn register_with<Req, S>(self, name: impl Into<String>, make: impl Fn(usize) -> S + Send + 'static) -> Self
    where
        S: Service<Req> + Clone + Send + 'static,
        S::Response: Serialize + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        Req: DeserializeOwned + Send + 'static,
    {
        self.put(name.into(), Box::new(Typed::new(make)))
    }

    /// As [`register`](Self::register), with an explicit schema, for types with names that say too
    /// little.
    #[must_use]
    pub fn register_as<Req, S>(self, name: impl Into<String>, schema: &str, service: S) -> Self
    where
        S: Service<Req> + Clone + Send + 'static,
        S::Response: Serialize + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        Req: DeserializeOwned + Send + 'static,
    {
        let typed = Typed::new(move |_| service.clone()).with_schema(schema);
        self.put(name.into(), Box::new(typed))
    }

    fn put(mut self, name: String, registration: Box<dyn Registration>) -> Self {
        self.drawn.remove(&name);
        self.stages.insert(name, registration);
        self
    }

    /// Sets the number of replicas of each stage; 1 by default. A request goes to the one of two
    /// random replicas that has fewer.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas.max(1);
        self
    }

    /// Sets the limits of the host.
    #[must_use]
    pub fn limits(mut self, limits: HostLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Encrypts connections. The acceptor offers `h2`, and `http/1.1` for probes, by ALPN.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, acceptor: dapple_tls::TlsAcceptor) -> Self {
        self.tls = Some(acceptor);
        self
    }

    /// Sets how long the end may take: [`HostLimits::drain`].
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Self {
        self.limits.drain = drain;
        self
    }

    /// Keeps only the stages of these names; all if none is given.
    ///
    /// # Errors
    ///
    /// One of them is not registered; the message lists those that are.
    pub fn only<N: AsRef<str>>(mut self, names: &[N]) -> Result<Self, String> {
        let wanted: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        for name in &wanted {
            if !self.stages.contains_key(*name) {
                let known: Vec<&str> = self.stages.keys().map(String::as_str).collect();
                return Err(format!("there is no stage `{name}`; there is {}", known.join(", ")));
            }
        }
        if !wanted.is_empty() {
            self.stages.retain(|name, _| wanted.contains(&name.as_str()));
        }
        Ok(self)
    }

    /// The graph of the host once it is [built](Self::build): stages with their queues and targets;
    /// services and functions by name.
    pub fn graph(&self) -> Graph {
        self.graph.clone()
    }

    /// The registered names and their schemas, a line each, separated by a tab.
    pub fn list_text(&self) -> String {
        self.registered().map(|(name, schema)| format!("{name}\t{schema}\n")).collect()
    }

    /// The registered names, each with its schema, in order.
    pub fn registered(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stages.iter().map(|(name, stage)| (name.as_str(), stage.schema()))
    }

    /// Starts the replicas. If stages need a runtime, it must be current here.
    pub fn build(self) -> Host {
        let stopper = Stopper::new();
        let replicas = self.replicas;
        let names: Vec<_> =
            self.stages.keys().filter(|name| !self.drawn.contains(*name)).map(|name| named(name, ())).collect();
        names.iter().for_each(|name| self.graph.add(name));
        let stages = self.stages.into_iter().map(|(name, stage)| (name, stage.start(replicas))).collect();
        let gauges = Gauges::new(&self.limits);
        Host {
            shared: Arc::new(Shared { stages, _names: names, gauges, limits: self.limits, stopper: stopper.clone() }),
            stopper,
            #[cfg(feature = "tls")]
            tls: self.tls,
        }
    }

    /// Builds the host and serves until the process ends.
    ///
    /// # Cancel safety
    ///
    /// As [`Host::serve`].
    ///
    /// # Errors
    ///
    /// As [`Host::serve`].
    pub async fn serve(self, listener: impl Listener) -> io::Result<Report> {
        self.build().serve(listener).await
    }
}

impl fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuilder").field("stages", &self.stages.keys()).finish_non_exhaustive()
    }
}
