//! `cargo xtask sanitize`: the integration tests of crates with unsafe code, with AddressSanitizer,
//! ThreadSanitizer and Miri.
//!
//! If a toolchain lacks a component, the command names it, and continues with the other tools.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::steps::{Step, run_all};
use crate::workspace::Workspace;

/// The text of `cargo xtask sanitize --help`.
pub(crate) const HELP: &str = "\
cargo xtask sanitize [address|thread|miri...] [--require]

Runs the tests in `tests/it` of dapple-sched, dapple-sync, dapple-stm, dapple-io and dapple-flow; all three tools, when none is named.

  address    AddressSanitizer: memory that is used after it was freed, and memory that nothing frees
  thread     ThreadSanitizer: two threads at one place without order; needs the source of std
  miri       Miri with tree borrows: undefined behavior of any kind, without dapple-io; needs a nightly toolchain
  --require  fails where a component is missing that a tool needs

A stable toolchain runs the first two by way of RUSTC_BOOTSTRAP. Each says which toolchain it takes, or which component is
missing and how to install it.
";

/// A tool that checks a running test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Address,
    Thread,
    Miri,
}

/// A toolchain that could run a tool.
struct Toolchain {
    /// As in `rustup run`; `None` for the one that runs this program.
    name: Option<&'static str>,
    /// rustc's version.
    version: String,
    sysroot: PathBuf,
    host: String,
}

/// How to run a tool, or its missing component.
struct Plan {
    steps: Vec<Step>,
    says: String,
    lacks: Option<String>,
}

/// Runs the named tools; true if none found a problem, and no required component is missing.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    let (tools, require) = parse(args)?;
    let workspace = Workspace::own()?;
    let toolchains: Vec<Toolchain> = [None, Some(NIGHTLY)].into_iter().filter_map(Toolchain::find).collect();
    let own = toolchains.first().ok_or("rustc does not tell its version")?;
    let (mut steps, mut lacking) = (Vec::new(), Vec::new());
    for tool in tools {
        let plan = match tool {
            Tool::Address => address(own, &workspace),
            Tool::Thread => thread(&toolchains, &workspace),
            Tool::Miri => miri(&toolchains, &workspace),
        };
        println!("{}: {}", tool.name(), plan.says);
        if let Some(lacks) = plan.lacks {
            println!("   {lacks}");
            lacking.push(tool.name());
        }
        steps.extend(plan.steps);
    }
    let clean = run_all(&steps);
    if require && !lacking.is_empty() {
        println!("missing components, and --require was passed: {}", lacking.join(", "));
    }
    Ok(clean && (!require || lacking.is_empty()))
}

/// AddressSanitizer over the crate with most of the unsafe code, as steps of `cargo xtask ci`;
/// empty if the toolchain lacks its runtime.
pub(crate) fn address_steps(workspace: &Workspace) -> Vec<Step> {
    match Toolchain::find(None).filter(|own| own.has_runtime("asan")) {
        Some(own) => own.address("-p dapple-sched", workspace),
        None => {
            println!("AddressSanitizer is left out: it needs {RUNTIME}");
            Vec::new()
        }
    }
}

fn address(own: &Toolchain, workspace: &Workspace) -> Plan {
    if !own.has_runtime("asan") {
        return Plan::missing(RUNTIME);
    }
    Plan { steps: own.address(PACKAGES, workspace), says: own.describe(), lacks: None }
}

/// With a std that is built with the sanitizer. The std of a toolchain hides the synchronization of
/// its mutexes, channels and counts: thousands of reports, many of them in our own code, which no
/// list can tell from a race.
fn thread(toolchains: &[Toolchain], workspace: &Workspace) -> Plan {
    let Some(able) = toolchains.iter().find(|toolchain| toolchain.has_source() && toolchain.has_runtime("tsan")) else {
        return Plan::missing(&Toolchain::install(None, "rust-src"));
    };
    let args = format!("{} --skip {SIGNALS}", tests("-Zbuild-std ", PACKAGES));
    let step = able.sanitizer("ThreadSanitizer", &args, "thread", workspace);
    let before = std::env::var("TSAN_OPTIONS").unwrap_or_default();
    let step = step.env("TSAN_OPTIONS", format!("{THREAD_OPTIONS} {before}").trim().to_owned());
    // It would take half a minute to symbolize an expected panic.
    let step = step.env("RUST_BACKTRACE", "0".to_owned());
    Plan { steps: vec![step], says: format!("{}, with a std built for it", able.describe()), lacks: None }
}

fn miri(toolchains: &[Toolchain], workspace: &Workspace) -> Plan {
    let able = toolchains.iter().find(|toolchain| toolchain.has_miri() && toolchain.has_source());
    let Some(able) = able else {
        return Plan::missing(&Toolchain::install(Some(NIGHTLY), "miri rust-src"));
    };
    let flags = format!("{MIRI_FLAGS} {}", std::env::var("MIRIFLAGS").unwrap_or_default());
    let step = able.step("Miri", MIRI_TESTS).env("MIRIFLAGS", flags.trim().to_owned());
    let step = step.target(workspace.target.join("sanitize/miri")).must_test();
    Plan { steps: vec![step], says: format!("{}, tree borrows", able.describe()), lacks: None }
}

impl Plan {
    /// Not run; contains the command that installs the missing parts.
    fn missing(install: &str) -> Plan {
        Plan { steps: Vec::new(), says: "not run".to_owned(), lacks: Some(format!("it needs: {install}")) }
    }
}

impl Tool {
    const ALL: [Tool; 3] = [Tool::Address, Tool::Thread, Tool::Miri];

    fn name(self) -> &'static str {
        match self {
            Tool::Address => "AddressSanitizer",
            Tool::Thread => "ThreadSanitizer",
            Tool::Miri => "Miri",
        }
    }
}

impl Toolchain {
    /// The facts about a toolchain; `None` if it is not installed.
    fn find(name: Option<&'static str>) -> Option<Toolchain> {
        let (verbose, sysroot) = (ask(name, &["-vV"])?, ask(name, &["--print", "sysroot"])?);
        let host = verbose.lines().find_map(|line| line.strip_prefix("host: "))?.to_owned();
        let version = verbose.lines().next()?.to_owned();
        Some(Toolchain { name, version, sysroot: PathBuf::from(sysroot.trim()), host })
    }

    fn has_source(&self) -> bool {
        self.sysroot.join("lib/rustlib/src/rust/library/Cargo.lock").is_file()
    }

    /// The library that a sanitizer's programs are linked with.
    fn has_runtime(&self, sanitizer: &str) -> bool {
        let folder = self.sysroot.join("lib/rustlib").join(&self.host).join("lib");
        let mut files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        files.any(|file| file.file_name().to_string_lossy().contains(&format!("_rt.{sanitizer}")))
    }

    fn has_miri(&self) -> bool {
        self.sysroot.join("bin/cargo-miri").is_file() && self.sysroot.join("bin/miri").is_file()
    }

    fn is_nightly(&self) -> bool {
        self.version.contains("-nightly") || self.version.contains("-dev")
    }

    fn describe(&self) -> String {
        let way = if self.is_nightly() { "" } else { " by RUSTC_BOOTSTRAP=1" };
        format!("{}{way}", self.version)
    }

    /// The command that installs components.
    fn install(name: Option<&str>, components: &str) -> String {
        let toolchain = name.map(|name| format!(" --toolchain {name}")).unwrap_or_default();
        format!("rustup component add {components}{toolchain}")
    }

    /// `cargo ARGS` with this toolchain, which may use unstable flags.
    fn step(&self, name: &'static str, args: &str) -> Step {
        let step = Step::cargo(name, args);
        let step = if self.is_nightly() { step } else { step.env("RUSTC_BOOTSTRAP", "1".to_owned()) };
        match self.name {
            Some(toolchain) => step.toolchain(toolchain),
            None => step,
        }
    }

    /// All tests with leak detection; then those that deliberately leak at random.
    fn address(&self, packages: &str, workspace: &Workspace) -> Vec<Step> {
        let clean = format!("{} --skip {FORGETS}", tests("", packages));
        let forgets = format!("test -p dapple-sched --test it {FORGETS}");
        let step = |name, args: &str| self.sanitizer(name, args, "address", workspace);
        vec![
            step("AddressSanitizer", &clean),
            step("AddressSanitizer, forgotten", &forgets).env("ASAN_OPTIONS", "detect_leaks=0".to_owned()),
        ]
    }

    /// Tests built with a sanitizer. With a target, because otherwise build scripts and macros
    /// would be built with it, too.
    fn sanitizer(&self, name: &'static str, args: &str, sanitizer: &str, workspace: &Workspace) -> Step {
        let flags = format!("-Zsanitizer={sanitizer} -Cunsafe-allow-abi-mismatch=sanitizer");
        let step = self.step(name, args).flags("RUSTFLAGS", &flags).env("CARGO_BUILD_TARGET", self.host.clone());
        step.target(workspace.target.join("sanitize").join(sanitizer)).must_test()
    }
}

/// Tests that compile other programs gain nothing, and would compile them with the sanitizer's
/// flags.
fn tests(flags: &str, packages: &str) -> String {
    format!("test {flags}{packages} --test it --no-fail-fast -- --skip compile_fail")
}

/// The output of a toolchain's `rustc ARGS`.
fn ask(toolchain: Option<&str>, args: &[&str]) -> Option<String> {
    let mut command = match toolchain {
        Some(name) => {
            let mut command = Command::new("rustup");
            command.args(["run", name, "rustc"]);
            command
        }
        None => Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())),
    };
    let output = command.args(args).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn parse(args: &[&str]) -> Result<(Vec<Tool>, bool), String> {
    let (mut tools, mut require) = (Vec::new(), false);
    for arg in args {
        match *arg {
            "address" => tools.push(Tool::Address),
            "thread" => tools.push(Tool::Thread),
            "miri" => tools.push(Tool::Miri),
            "--require" => require = true,
            other => return Err(format!("there is no sanitizer `{other}`; there are address, thread, miri")),
        }
    }
    Ok((if tools.is_empty() { Tool::ALL.to_vec() } else { tools }, require))
}

/// Some distributions' toolchains lack it.
const RUNTIME: &str = "a toolchain with the sanitizer's runtime, as rustup has them for Linux and macOS";

/// The toolchain that may have Miri, in addition to the current one.
const NIGHTLY: &str = "nightly";

/// Crates with unsafe code.
const PACKAGES: &str = "-p dapple-sched -p dapple-sync -p dapple-stm -p dapple-io -p dapple-flow";

/// Random programs that forget futures and handles of tasks: those leak, correctly.
const FORGETS: &str = "random_nesting";

/// Tests that send this process a signal. ThreadSanitizer calls the handler at the next intercepted
/// call of the thread that got the signal. A thread that sleeps in its own system call, as std's
/// locks do, makes none.
const SIGNALS: &str = "signal";

/// A test forks a child that starts threads, which ThreadSanitizer reports as a mistake.
const THREAD_OPTIONS: &str = "die_after_fork=0";

/// Miri has neither epoll nor io_uring, so this omits dapple-io. It would report threads that
/// outlive the tests as leaks; AddressSanitizer looks for leaks.
const MIRI_TESTS: &str = "miri test -p dapple-sched -p dapple-sync -p dapple-stm --test it --no-fail-fast";
const MIRI_FLAGS: &str = "-Zmiri-tree-borrows -Zmiri-ignore-leaks";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_named_or_all() {
        assert_eq!(parse(&[]), Ok((Tool::ALL.to_vec(), false)));
        assert_eq!(parse(&["miri", "--require", "address"]), Ok((vec![Tool::Miri, Tool::Address], true)));
        assert!(parse(&["memory"]).unwrap_err().contains("there are address, thread, miri"));
    }

    #[test]
    fn a_component_that_is_missing_is_told_with_its_command() {
        let bare = Toolchain {
            name: None,
            version: "rustc 1.95.0".to_owned(),
            sysroot: PathBuf::from("/nonexistent"),
            host: "x86_64-unknown-linux-gnu".to_owned(),
        };
        let workspace = Workspace::own().unwrap();
        let plan = miri(&[], &workspace);
        assert!(
            plan.steps.is_empty() && plan.lacks.unwrap().contains("rustup component add miri rust-src --toolchain")
        );
        let plan = thread(std::slice::from_ref(&bare), &workspace);
        assert!(plan.steps.is_empty() && plan.lacks.unwrap().ends_with("rustup component add rust-src"));
        let plan = address(&bare, &workspace);
        assert!(plan.steps.is_empty() && plan.lacks.unwrap().contains("runtime"));
        assert!(bare.describe().contains("RUSTC_BOOTSTRAP=1"));
    }
}
