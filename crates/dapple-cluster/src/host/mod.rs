//! One machine of a cluster: it registers itself, runs the replicas that were assigned to it, and is a candidate for deciding.
//!
//! ```text
//!   register   lease ─▶ hosts/NAME, found/… ── each change, and every 5 s ─▶ the same again; a lost lease: from the start
//!   follow     assigned/NAME/ ─▶ a supervisor for each new replica; those that are gone drain
//!   supervise  (one task a replica) start ─▶ ready ─▶ …; see `supervise`
//!   decide     the decider, for the case that this host gets the lock
//! ```
//!
//! A host that cannot reach etcd runs its replicas on. It stops none because of an outage: only an assignment that is no more does that.

mod leftovers;
mod limits;
mod machine;
mod register;
mod report;
mod supervise;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dapple_etcd::{Error, Etcd, Get, Keys, Watching};
use dapple_io::time::{sleep, timeout};
use dapple_sched::JoinHandle;
use dapple_sync::task::{CancellationToken, First, race};

use self::leftovers::Leftovers;
use self::limits::Limits;
use self::report::Reporting;
use crate::clock::now_ms;
use crate::decider::Decider;
use crate::directory::Directory;
use crate::record::{Assignment, HostReport, check_name};

/// The settings of a host.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// Its name, unlike that of all other hosts.
    pub name: String,
    /// The address at which its replicas listen.
    pub address: IpAddr,
    /// The cores that it offers; those of this process if not said.
    pub cores: Option<f64>,
    /// The memory that it offers, in 1,048,576 bytes; that of the machine if not said.
    pub memory_mb: Option<u64>,
    /// How long until the cluster gives it up when it is silent, 2 s at least.
    pub ttl: Duration,
    /// How long its replicas may take to move away when it ends.
    pub drain: Duration,
    /// The folder in which it notes its processes.
    pub state: PathBuf,
}

/// The reason why a host ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// It cannot have this name.
    #[error("--name: {0}")]
    Name(String),
    /// Another host has the name.
    #[error(
        "another host named {name} is registered, with the address {address}; choose another --name, or end that one first"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The other one's address.
        address: String,
    },
    /// Its folder cannot be made.
    #[error("cannot make the folder {0} ({1}); choose another one with --state")]
    State(PathBuf, #[source] io::Error),
    /// etcd refuses it.
    #[error(transparent)]
    Etcd(#[from] Error),
}

/// A host of a cluster; see the module's text in the sources.
#[derive(Debug)]
pub struct Host {
    directory: Directory,
    settings: HostSettings,
    shared: Arc<Shared>,
}

/// Parts that all tasks of a host use.
#[derive(Debug)]
struct Shared {
    reporting: Reporting,
    limits: Limits,
    leftovers: Leftovers,
}

/// A replica that runs here, or ends.
struct Running {
    assignment: Assignment,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Host {
    /// Looks at the machine; registers nothing yet.
    ///
    /// # Errors
    ///
    /// [`HostError`].
    pub fn new(directory: Directory, settings: HostSettings) -> Result<Host, HostError> {
        check_name(&settings.name).map_err(HostError::Name)?;
        let leftovers = Leftovers::open(&settings.state.join("replicas"));
        let leftovers = leftovers.map_err(|error| HostError::State(settings.state.clone(), error))?;
        let limits = Limits::of_machine(&settings.name);
        match limits.are_complete() {
            true => tracing::info!("limits of replicas: {}", limits.text()),
            false => tracing::warn!("limits of replicas: {}", limits.text()),
        }
        let (memory_mb, memory_free_mb) = machine::memory_mb();
        let report = HostReport {
            name: settings.name.clone(),
            incarnation: format!("{:016x}", dapple_sched::environment::random()),
            address: settings.address.to_string(),
            cores: settings.cores.unwrap_or_else(machine::cores),
            memory_mb: settings.memory_mb.unwrap_or(memory_mb),
            load_percent: 0,
            memory_free_mb,
            limits: limits.text().to_owned(),
            since_ms: now_ms(),
            is_leaving: false,
            replicas: BTreeMap::new(),
        };
        let shared = Arc::new(Shared { reporting: Reporting::new(report), limits, leftovers });
        Ok(Host { directory, settings, shared })
    }

    /// The present report of this host about itself.
    pub fn report(&self) -> HostReport {
        self.shared.reporting.get()
    }

    /// Runs until `stop` resolves; `begun` is called when it is registered. Then its replicas move to other hosts, or end.
    ///
    /// # Errors
    ///
    /// [`HostError`]. Outages of etcd are none: it waits for their end.
    pub async fn run(&self, stop: impl Future<Output = ()>, begun: impl FnOnce()) -> Result<(), HostError> {
        self.shared.leftovers.end_all().await;
        let ended = CancellationToken::new();
        let (first, registered) = dapple_sync::sync::oneshot::channel();
        let registering =
            register::register(self.directory.clone(), self.shared.clone(), self.settings.ttl, ended.clone(), first);
        let mut registering = dapple_sched::spawn(registering);
        match race(&mut registering, registered).await {
            First::Left(Ok(Err(error))) => return Err(error),
            First::Left(_) => return Ok(()),
            First::Right(_) => {}
        }
        begun();
        let decider = Decider::new(self.directory.clone(), &self.settings.name, self.settings.ttl);
        let deciding = dapple_sched::spawn(async move { decider.run().await });
        let mut running = BTreeMap::new();
        let outcome = match race(&mut registering, race(stop, self.follow(&mut running))).await {
            First::Left(Ok(Err(error))) => Err(error),
            _ => Ok(()),
        };
        if outcome.is_ok() {
            self.leave(&mut running).await;
        }
        deciding.abort();
        let _aborted = deciding.await;
        for one in running.values() {
            one.stop.cancel();
        }
        for (_, one) in running {
            let _ended = one.task.await;
        }
        ended.cancel();
        if outcome.is_ok() {
            // It takes the entry back, if etcd answers.
            let _taken_back = registering.await;
        }
        outcome
    }

    /// Runs what is assigned to this host. Does not return.
    async fn follow(&self, running: &mut BTreeMap<String, Running>) {
        let etcd = self.directory.etcd();
        let prefix = self.prefix();
        let mut is_told = false;
        loop {
            let followed = self.follow_once(etcd, &prefix, running).await;
            let Err(error) = followed else { continue };
            if !std::mem::replace(&mut is_told, true) {
                tracing::warn!(%error, "this host does not see what it is to run; what it runs goes on");
            }
            sleep(AGAIN).await;
        }
    }

    fn prefix(&self) -> String {
        self.directory.place().key("assigned", &format!("{}/", self.settings.name))
    }

    /// Reads all assignments, and again after each change.
    async fn follow_once(
        &self,
        etcd: &Etcd,
        prefix: &str,
        running: &mut BTreeMap<String, Running>,
    ) -> Result<(), Error> {
        let mut revision = self.reconcile(etcd, prefix, running).await?;
        let mut watch = etcd.watch(Watching::new(Keys::prefix(prefix.to_owned())).since(revision + 1)).await?;
        loop {
            if watch.next().await?.iter().any(|event| event.revision() > revision) {
                revision = self.reconcile(etcd, prefix, running).await?;
            }
        }
    }

    async fn reconcile(
        &self,
        etcd: &Etcd,
        prefix: &str,
        running: &mut BTreeMap<String, Running>,
    ) -> Result<i64, Error> {
        let found = etcd.find(Get::new(Keys::prefix(prefix.to_owned()))).await?;
        let mut wanted = BTreeMap::new();
        let mut unreadable = Vec::new();
        for record in &found.records {
            let name = String::from_utf8_lossy(&record.key[prefix.len()..]).into_owned();
            let read = serde_json::from_slice::<Assignment>(&record.value).map_err(|error| error.to_string());
            match read.and_then(|one| self.check(one, &name)) {
                Ok(one) => drop(wanted.insert(name, one)),
                Err(error) => {
                    tracing::warn!(replica = name, %error, "this assignment cannot be read; what runs goes on");
                    unreadable.push(name);
                }
            }
        }
        running.retain(|_, one| !one.task.is_finished());
        for (name, one) in running.iter().filter(|(name, _)| !wanted.contains_key(*name) && !unreadable.contains(name))
        {
            if !one.stop.is_cancelled() {
                tracing::info!(replica = name, "is no longer assigned to this host; it drains");
                one.stop.cancel();
            }
        }
        self.shared.reporting.succeeds(wanted.values().filter_map(|one| one.replaces.clone()).collect());
        for (name, assignment) in wanted {
            // A replica that drains is not started again under its name.
            if running.get(&name).is_none_or(|known| known.assignment != assignment && known.task.is_finished()) {
                let stop = CancellationToken::new();
                let task =
                    dapple_sched::spawn(supervise::supervise(self.shared.clone(), assignment.clone(), stop.clone()));
                running.insert(name, Running { assignment, stop, task });
            }
        }
        Ok(found.revision)
    }

    /// Names become those of files and cgroups, so they are checked, whatever wrote them.
    fn check(&self, one: Assignment, key: &str) -> Result<Assignment, String> {
        one.service.check()?;
        let number = one.replica.strip_prefix(&format!("{}.", one.service.name));
        let is_number =
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
        match is_number && one.replica == key && one.host == self.settings.name {
            true => Ok(one),
            false => Err("it is not named as its key".to_owned()),
        }
    }

    /// Lets the replicas move to other hosts, if there are some, within the time for that.
    async fn leave(&self, running: &mut BTreeMap<String, Running>) {
        self.shared.reporting.change(|report| report.is_leaving = true);
        let view = match timeout(ASK_MAX, self.directory.status()).await {
            Ok(Ok(status)) => status.view,
            _ => return,
        };
        let takes = |name: &String, host: &HostReport| {
            *name != self.settings.name && !host.is_leaving && !view.draining.contains(name)
        };
        let others = view.hosts.iter().filter(|(name, host)| takes(name, host)).count();
        running.retain(|_, one| !one.task.is_finished());
        if others == 0 || running.is_empty() || self.settings.drain.is_zero() {
            return;
        }
        tracing::info!(replicas = running.len(), "this host ends; its replicas move to other hosts first");
        let moved = async {
            let emptied = async {
                while self.shared.reporting.has_replicas() {
                    sleep(LOOK).await;
                }
            };
            race(emptied, self.follow(running)).await;
        };
        if timeout(self.settings.drain, moved).await.is_err() {
            tracing::warn!("not all replicas have moved within --move-s; those that are left end now");
        }
    }
}

const AGAIN: Duration = Duration::from_secs(1);
const ASK_MAX: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);
