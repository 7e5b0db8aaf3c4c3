//! A server with requests that cost as much CPU as their address says, for experiments about
//! overload.
//!
//! ```text
//! cargo run --release --example spin_server -- --port 7007 --workers 1
//! curl 'http://127.0.0.1:7007/?us=5000'
//! curl -H 'X-Class: high' 'http://127.0.0.1:7007/?us=5000'
//! ```
//!
//! The handler uses the CPU without ever awaiting, as a computing program does. The admission
//! control of `dapple::serve`, which is on by default, refuses requests at once with 503 that would
//! be answered too late. A request may state its importance; health checks (`/healthz`) need not.

use std::convert::Infallible;
use std::process::ExitCode;
use std::time::Duration;

use dapple::net::TcpListener;
use dapple::serve::Body;
use dapple::stage::admission::{Class, Offer};
use http::{HeaderMap, Request, Response, StatusCode};
use rustix::time::{ClockId, clock_gettime};
use tower::service_fn;

fn main() -> ExitCode {
    let result = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => run(&arguments),
        Ok(None) => {
            println!("{HELP}");
            Ok(())
        }
        Err(problem) => Err(format!("{problem}; --help says what there is")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("spin_server: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let mut builder = dapple::builder();
    if let Some(workers) = arguments.workers {
        builder = builder.workers(workers);
    }
    let runtime = builder.build().map_err(|error| format!("the runtime cannot start: {error}"))?;
    runtime.block_on(async {
        let asked = format!("127.0.0.1:{}", arguments.port);
        let listener = TcpListener::bind(&asked).map_err(|error| format!("cannot listen on {asked}: {error}"))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        println!("spin_server listens on {address}; try: curl 'http://{address}/?us=5000'");
        let mut server = dapple::serve(listener, service_fn(spin))
            .with_signals()
            .describe(|parts, _, offer| class_of(&parts.headers, offer));
        if let Some(target_delay) = arguments.target_delay {
            server = server.target_delay(target_delay);
        }
        if !arguments.has_admission {
            server = server.no_admission();
        }
        server.await.map_err(|error| format!("serving ended: {error}"))
    })
}

/// The handler. It never waits.
async fn spin(request: Request<Body>) -> Result<Response<String>, Infallible> {
    let asked = asked_class(request.headers()).and_then(|_| asked_us(request.uri().query().unwrap_or_default()));
    let (status, text) = match asked {
        Ok(us) => (StatusCode::OK, format!("{} us burnt\n", burn(Duration::from_micros(us)).as_micros())),
        Err(problem) => (StatusCode::BAD_REQUEST, format!("{problem}\n")),
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    Ok(response)
}

/// The class that the request states; a real server would derive it from the client. Health checks
/// have their own class already.
fn class_of(headers: &HeaderMap, offer: Offer) -> Offer {
    match asked_class(headers) {
        Ok(Some(class)) => offer.class(class),
        _ => offer,
    }
}

fn asked_class(headers: &HeaderMap) -> Result<Option<Class>, String> {
    let Some(value) = headers.get("x-class") else { return Ok(None) };
    match value.as_bytes() {
        b"high" => Ok(Some(Class::HIGH)),
        b"normal" => Ok(Some(Class::NORMAL)),
        b"low" => Ok(Some(Class::LOW)),
        _ => Err(format!("X-Class: {value:?} is not one of high, normal and low")),
    }
}

fn asked_us(query: &str) -> Result<u64, String> {
    let mut values = query.split('&').filter_map(|pair| pair.strip_prefix("us="));
    let Some(value) = values.next() else { return Ok(0) };
    match value.parse() {
        Ok(us) if us <= US_MAX => Ok(us),
        _ => Err(format!("us={value:?} is not a number of microseconds from 0 to {US_MAX}")),
    }
}

/// Uses this much CPU, and returns the amount. Time in which other threads have the core does not
/// count.
fn burn(cost: Duration) -> Duration {
    let begin = cpu_time();
    loop {
        let burnt = cpu_time().saturating_sub(begin);
        if burnt >= cost {
            return burnt;
        }
        for _ in 0..SPINS {
            std::hint::spin_loop();
        }
    }
}

/// The CPU time of this thread so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

struct Arguments {
    port: u16,
    workers: Option<usize>,
    target_delay: Option<Duration>,
    has_admission: bool,
}

impl Arguments {
    /// `None` if the user wants help.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
        let mut arguments = Arguments { port: PORT, workers: None, target_delay: None, has_admission: true };
        while let Some(word) = words.next() {
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word, None),
            };
            let mut value = || inline.clone().or_else(|| words.next()).ok_or(format!("{name} needs a value"));
            match name.as_str() {
                "--port" => arguments.port = number(&name, &value()?, 0, u16::MAX.into())? as u16,
                "--workers" => arguments.workers = Some(number(&name, &value()?, 1, 1_024)? as usize),
                "--target-delay-ms" => {
                    arguments.target_delay = Some(Duration::from_millis(number(&name, &value()?, 1, 3_600_000)?));
                }
                "--no-admission" if inline.is_none() => arguments.has_admission = false,
                "--help" | "-h" if inline.is_none() => return Ok(None),
                _ => return Err(format!("{name:?} is not an option")),
            }
        }
        Ok(Some(arguments))
    }
}

fn number(name: &str, value: &str, min: u64, max: u64) -> Result<u64, String> {
    let number = value.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or(format!("{name} takes a number from {min} to {max}, and {value:?} is none"))
}

const HELP: &str = "A server whose requests burn CPU: GET /?us=5000 takes 5 ms of it.
A request with the field X-Class: high, normal or low is of that class, and GET /healthz?us=5000 is a health check, which passes first.

usage: spin_server [--port N] [--workers N] [--target-delay-ms N | --no-admission]

  --port N               where to listen on 127.0.0.1; 0 lets the system choose (default 7007)
  --workers N            threads that run handlers (default: one per core)
  --target-delay-ms N    refuse what would be answered later than this (default 100)
  --no-admission         refuse nothing
  --help                 this text";

const PORT: u16 = 7007;

/// More than any request needs.
const US_MAX: u64 = 60_000_000;

/// The number of spins between two reads of the clock, each of which costs a system call: a
/// microsecond or two.
const SPINS: u32 = 32;
