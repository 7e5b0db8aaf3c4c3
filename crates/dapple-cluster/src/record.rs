//! The records of a cluster in its store: services, hosts, and the replicas that hosts are to run.
//!
//! Each record has one writer. That is why no record needs a lock of its own:
//!
//! | record | writer | lives until |
//! |---|---|---|
//! | [`Service`] | a person, by `dapple cluster` | it is removed |
//! | [`HostReport`] | the host | its lease ends |
//! | [`Assignment`] | the host that decides, fenced by its lock | it is removed |

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A service as its owner describes it: the program, its needs, and how many of it are to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Its name: letters, digits, `-`, `_` and `.`, 63 at most.
    pub name: String,
    /// The name of its version. Another one lets the cluster replace all replicas.
    #[serde(default = "first_version")]
    pub version: String,
    /// The program and its arguments. `{listen}`, `{address}`, `{service}`, `{version}`, `{replica}` and `{host}` are replaced.
    pub command: Vec<String>,
    /// Variables for the program, beside those of the host.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The least number of replicas.
    #[serde(default = "one")]
    pub min: u32,
    /// The largest number of replicas; `min` if it is less.
    #[serde(default)]
    pub max: u32,
    /// The load of a replica, in percent of its cores, at which one more starts.
    #[serde(default = "scale_at")]
    pub scale_at_percent: u32,
    /// The cores of one replica; a host promises no more than it has.
    #[serde(default = "one_core")]
    pub cores: f64,
    /// The memory of one replica, in 1,048,576 bytes.
    #[serde(default = "memory_mb")]
    pub memory_mb: u64,
    /// The most processes and threads of one replica.
    #[serde(default)]
    pub tasks_max: Option<u32>,
    /// The port; 0: the program chooses one, and says so. A host runs one replica of a service with a port.
    #[serde(default)]
    pub port: u16,
    /// The program takes the socket over from the process that has it (`--take-over`), so that a
    /// replacement can start on the same host and port.
    #[serde(default)]
    pub take_over: bool,
    /// When a replica counts as ready.
    #[serde(default)]
    pub ready: Ready,
    /// A path that the host asks a ready replica for; if it does not answer several times, it is restarted.
    #[serde(default)]
    pub health: Option<String>,
    /// The names under which clients find the replicas; the service's name if there is none.
    #[serde(default)]
    pub stages: Vec<String>,
    /// How long a replica may take until it is ready, in seconds.
    #[serde(default = "start_s")]
    pub start_s: u64,
    /// How long a replica may take to end after SIGTERM, in seconds; then it is killed.
    #[serde(default = "drain_s")]
    pub drain_s: u64,
    /// Replace each replica at this age, in seconds, against slow leaks.
    #[serde(default)]
    pub rejuvenate_s: Option<u64>,
    /// Counts the requests to replace all replicas though nothing else has changed.
    #[serde(default)]
    pub epoch: u64,
}

/// When a replica counts as ready to serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ready {
    /// When a line of its standard output has `listening on HOST:PORT`, as stage hosts print it.
    #[default]
    Line,
    /// When something accepts connections at its port.
    Port,
    /// As soon as it runs.
    Started,
}

/// A host as it describes itself, under its lease: with the lease the record goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostReport {
    /// Its name, the last part of its key.
    pub name: String,
    /// Another value for each start of the host.
    pub incarnation: String,
    /// The address at which its replicas listen.
    pub address: String,
    /// The cores that it offers.
    pub cores: f64,
    /// The memory that it offers, in 1,048,576 bytes.
    pub memory_mb: u64,
    /// The measured use of all cores, in percent.
    pub load_percent: u32,
    /// The memory that the kernel says is available, in 1,048,576 bytes.
    pub memory_free_mb: u64,
    /// How limits are kept here, in words.
    pub limits: String,
    /// When it started, in milliseconds since 1970.
    pub since_ms: u64,
    /// It ends: nothing is placed there.
    pub is_leaving: bool,
    /// The replicas that it runs.
    pub replicas: BTreeMap<String, ReplicaReport>,
}

/// A replica as its host sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaReport {
    /// Its service.
    pub service: String,
    /// The version that runs.
    pub version: String,
    /// Its state.
    pub state: ReplicaState,
    /// Where it listens.
    pub listens: Option<String>,
    /// The names under which clients find it.
    pub stages: Vec<String>,
    /// Its use of the processor, in percent of its cores.
    pub load_percent: u32,
    /// Its memory, in 1,048,576 bytes.
    pub memory_mb: u64,
    /// How often it was started again.
    pub restarts: u32,
    /// How often it failed in a row.
    pub failures: u32,
    /// Its last failure, in words.
    pub failure: String,
}

/// The state of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplicaState {
    /// Its process runs, and is not ready.
    #[default]
    Starting,
    /// It serves.
    Ready,
    /// Its process has ended; it is started again after a wait.
    Waiting,
    /// It finishes its requests, and ends.
    Draining,
    /// Its successor took its socket over, and its process has ended.
    Succeeded,
}

/// A replica that a host is to run. Its key is the host's name and the replica's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Its name, unlike that of all earlier ones.
    pub replica: String,
    /// The host.
    pub host: String,
    /// The service as it was when the replica was placed.
    pub service: Service,
    /// The replica that goes when this one is ready.
    #[serde(default)]
    pub replaces: Option<String>,
    /// Why it is here.
    pub reason: String,
    /// When it was placed, in milliseconds since 1970.
    pub placed_ms: u64,
    /// Hosts on which its predecessors failed.
    #[serde(default)]
    pub failed_on: Vec<String>,
}

/// An event: a decision that was carried out, and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, from 1 on.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
    /// The host that decided.
    pub decider: String,
    /// The change.
    pub done: String,
    /// Why.
    pub reason: String,
}

impl Service {
    /// A service of this name and command; all else by default.
    pub fn new(name: &str, command: impl IntoIterator<Item = impl Into<String>>) -> Service {
        Service {
            name: name.to_owned(),
            version: first_version(),
            command: command.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            min: one(),
            max: 0,
            scale_at_percent: scale_at(),
            cores: one_core(),
            memory_mb: memory_mb(),
            tasks_max: None,
            port: 0,
            take_over: false,
            ready: Ready::default(),
            health: None,
            stages: Vec::new(),
            start_s: start_s(),
            drain_s: drain_s(),
            rejuvenate_s: None,
            epoch: 0,
        }
    }

    /// The largest number of replicas.
    pub fn max(&self) -> u32 {
        self.max.max(self.min)
    }

    /// The cores of one replica, in thousandths.
    pub fn cores_milli(&self) -> u64 {
        (self.cores.max(0.0) * 1000.0) as u64
    }

    /// The names under which clients find its replicas.
    pub fn stages(&self) -> Vec<&str> {
        match self.stages.is_empty() {
            true => vec![&self.name],
            false => self.stages.iter().map(String::as_str).collect(),
        }
    }

    /// Whether a replica of `self` need not be replaced to become one of `other`: they differ only in
    /// how many there are and how old they get.
    pub fn runs_like(&self, other: &Service) -> bool {
        let like = Service {
            min: other.min,
            max: other.max,
            scale_at_percent: other.scale_at_percent,
            rejuvenate_s: other.rejuvenate_s,
            ..self.clone()
        };
        like == *other
    }

    /// Checks what types do not.
    ///
    /// # Errors
    ///
    /// The field that makes no sense, and what would.
    pub fn check(&self) -> Result<(), String> {
        check_name(&self.name).map_err(|error| format!("name: {error}"))?;
        let fail = |field: &str, text: &str| Err(format!("{field}: {text}"));
        if self.command.first().is_none_or(String::is_empty) {
            return fail(
                "command",
                "there is no program; write [\"dapple\", \"stage-host\", \"--listen\", \"{listen}\"]",
            );
        }
        if self.command.iter().any(|word| word.contains('\0')) {
            return fail("command", "a word has a zero byte, which no program can be given");
        }
        let has_bad_variable =
            self.env.iter().any(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'));
        if has_bad_variable {
            return fail("env", "a name is empty or has `=`, or there is a zero byte");
        }
        if !(self.cores.is_finite() && (0.01..=10_000.0).contains(&self.cores)) {
            return fail("cores", "write a number from 0.01 to 10000, for example 0.5");
        }
        if !(1..=1 << 30).contains(&self.memory_mb) {
            return fail("memory_mb", "write a number from 1 to 1073741824, for example 256");
        }
        if self.min == 0 && self.max > 0 {
            return fail(
                "min",
                "with 0 none would ever start, since nothing measures the load of none; write 1, or 0 for both",
            );
        }
        if self.max() > REPLICAS_MAX {
            return fail("max", "write a number up to 10000");
        }
        if !(1..=100).contains(&self.scale_at_percent) {
            return fail("scale_at_percent", "write a number from 1 to 100, for example 70");
        }
        if self.ready == Ready::Port && self.port == 0 {
            return fail("ready", "`port` needs a port other than 0");
        }
        if self.take_over && self.port == 0 {
            return fail("take_over", "there is nothing to take over where the program chooses its port; give a port");
        }
        if self.health.as_ref().is_some_and(|path| !path.starts_with('/') || path.contains(char::is_whitespace)) {
            return fail("health", "write a path, for example /health");
        }
        if self.rejuvenate_s.is_some_and(|age| age < 10) {
            return fail("rejuvenate_s", "write 10 or more, for example 86400 for a day");
        }
        for (field, seconds) in [("start_s", self.start_s), ("drain_s", self.drain_s)] {
            if seconds > 86_400 {
                return fail(field, "write seconds up to 86400");
            }
        }
        let is_bad = |text: &String| text.is_empty() || text.len() > 256 || text.contains(char::is_control);
        if is_bad(&self.version) || self.stages.iter().any(is_bad) {
            return fail("version and stages", "a text is empty, longer than 256 bytes, or has control characters");
        }
        Ok(())
    }
}

/// Checks the name of a service or a host.
///
/// # Errors
///
/// It cannot be a name; the message says what can.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_good = (1..=63).contains(&name.len())
        && name.bytes().all(is_letter)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric());
    match is_good {
        true => Ok(()),
        false => Err(format!(
            "{name:?} is no name; write up to 63 letters, digits, `-`, `_` and `.`, a letter or digit first"
        )),
    }
}

fn first_version() -> String {
    "1".to_owned()
}

fn one() -> u32 {
    1
}

fn scale_at() -> u32 {
    70
}

fn one_core() -> f64 {
    1.0
}

fn memory_mb() -> u64 {
    256
}

fn start_s() -> u64 {
    60
}

fn drain_s() -> u64 {
    30
}

/// The most replicas of a service.
const REPLICAS_MAX: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::{Ready, Service};

    #[test]
    fn a_short_description_is_enough_and_misspelt_fields_are_named() {
        let read = |text: &str| serde_json::from_str::<Service>(text).map_err(|error| error.to_string());
        let echo = read(r#"{"name":"echo","command":["dapple"],"cores":0.5}"#).unwrap();
        assert_eq!((echo.min, echo.max(), echo.memory_mb, echo.cores_milli()), (1, 1, 256, 500));
        assert_eq!((echo.check(), echo.stages()), (Ok(()), vec!["echo"]));
        assert!(read(r#"{"name":"echo","command":["dapple"],"core":1}"#).unwrap_err().contains("core"));
    }

    #[test]
    fn descriptions_that_cannot_run_are_refused() {
        let good = Service::new("echo", ["dapple"]);
        let cases: [(&str, Service); 9] = [
            ("name", Service { name: "a/b".to_owned(), ..good.clone() }),
            ("command", Service { command: Vec::new(), ..good.clone() }),
            ("env", Service { env: [("A=B".to_owned(), String::new())].into(), ..good.clone() }),
            ("cores", Service { cores: f64::NAN, ..good.clone() }),
            ("memory_mb", Service { memory_mb: 0, ..good.clone() }),
            ("ready", Service { ready: Ready::Port, ..good.clone() }),
            ("take_over", Service { take_over: true, ..good.clone() }),
            ("health", Service { health: Some("health".to_owned()), ..good.clone() }),
            ("rejuvenate_s", Service { rejuvenate_s: Some(1), ..good.clone() }),
        ];
        for (field, service) in cases {
            assert!(service.check().unwrap_err().starts_with(field), "{field}");
        }
    }

    #[test]
    fn a_change_of_numbers_alone_replaces_nothing() {
        let one = Service::new("echo", ["dapple"]);
        assert!(one.runs_like(&Service { min: 3, max: 9, rejuvenate_s: Some(60), ..one.clone() }));
        assert!(!one.runs_like(&Service { version: "2".to_owned(), ..one.clone() }));
        assert!(!one.runs_like(&Service { epoch: 1, ..one.clone() }));
    }
}
