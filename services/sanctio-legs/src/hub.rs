//! The client of a hub, which is the program `sanctio`: the legs of one network, what is said in them, and what to send.
//! `sanctio-xmpp` and `sanctio-mail` have this file, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple::http::{Client, Error, Method, Request, Response, StatusCode, header};
use dapple::serve::bearer::Token;
use dapple::stage::Backoff;
use dapple::task::{CancellationToken, First, Group, race};
use dapple::time::{Instant, sleep, timeout};
use serde::Deserialize;
use serde_json::{Value, json};

/// A leg of a conversation: the name of the conversation, and the place in the program's network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leg {
    /// The name of the conversation.
    pub talk: String,
    /// The place in the network, such as a channel or an address.
    pub place: String,
}

/// A message on its way to a leg.
#[derive(Clone, Debug, Deserialize)]
pub struct Message {
    /// Its position in the conversation.
    pub position: u64,
    /// The time at which it was said, in milliseconds since 1970.
    pub at_ms: u64,
    /// The speaker, with the network: `ann@irc`.
    pub name: String,
    /// The words, in the language of the leg.
    pub text: String,
}

/// A network, to which messages go.
pub trait Network: Send + Sync + 'static {
    /// Sends a message, which it claims right before.
    ///
    /// # Errors
    /// The message was not sent, and may be sent later if it was not claimed.
    fn deliver(&self, hub: &Hub, leg: &Leg, message: &Message) -> impl Future<Output = Result<(), String>> + Send;

    /// The hub has other legs.
    fn changed(&self) {}
}

/// The hub.
pub struct Hub {
    client: Client,
    /// Without a slash at its end.
    url: String,
    token: Option<Token>,
    /// The beginning of the legs, without the colon.
    network: &'static str,
    legs: Mutex<BTreeSet<Leg>>,
    /// Cancelled when the program ends.
    pub ending: CancellationToken,
}

/// The reason why the hub did not do something, and its status if it refused.
#[derive(Debug)]
pub struct Problem {
    /// The status, if it refused.
    pub status: Option<StatusCode>,
    /// The reason, as a part of a sentence.
    pub text: String,
}

impl Hub {
    /// The hub at a URL, for the legs of one network.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn new(network: &'static str, url: &str, token: Option<Token>) -> Result<Arc<Hub>, Error> {
        let client = Client::builder().connections_per_host(CONNECTIONS_MAX).head_timeout(ANSWER_MAX);
        let (client, url) = (client.read_timeout(SILENCE_MAX).build()?, url.trim_end_matches('/').to_owned());
        Ok(Arc::new(Hub { client, url, token, network, legs: Mutex::default(), ending: CancellationToken::new() }))
    }

    /// The legs of the network.
    pub fn legs(&self) -> MutexGuard<'_, BTreeSet<Leg>> {
        self.legs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers the messages of all legs until the program ends.
    pub async fn carry<N: Network>(self: Arc<Self>, network: Arc<N>) {
        let (mut running, mut problem) = (BTreeMap::<Leg, Group<()>>::new(), String::new());
        while !self.ending.is_cancelled() {
            match self.known_legs().await {
                Ok(legs) => {
                    problem.clear();
                    // A task ends with its group.
                    running.retain(|leg, _| legs.contains(leg));
                    for leg in legs.iter().filter(|leg| !running.contains_key(leg)).cloned().collect::<Vec<_>>() {
                        let group = Group::new();
                        group.spawn(self.clone().carry_leg(network.clone(), leg.clone())).await;
                        running.insert(leg, group);
                    }
                    let old = std::mem::replace(&mut *self.legs(), legs);
                    if *self.legs() != old {
                        network.changed();
                    }
                }
                Err(Problem { text, .. }) if text == problem => {}
                Err(Problem { text, .. }) => {
                    eprintln!("{}: the hub {}: {text}", self.network, self.url);
                    problem = text;
                }
            }
            race(self.ending.cancelled(), sleep(LOOK_EVERY)).await;
        }
        // A message that was claimed may arrive.
        let end = Instant::now() + END_MAX;
        for group in running.values() {
            let _ = timeout(end.saturating_duration_since(Instant::now()), group.all_ended()).await;
        }
    }

    async fn carry_leg<N: Network>(self: Arc<Self>, network: Arc<N>, leg: Leg) {
        let (backoff, mut failures) = (Backoff::new(RETRY_WAIT_MIN, RETRY_WAIT_MAX).jitter(0.0), 0);
        loop {
            let begin = Instant::now();
            let Err(error) = self.follow(&*network, &leg).await else { return };
            failures = if begin.elapsed() > RETRY_WAIT_MAX { 0 } else { failures + 1 };
            if failures > 1 {
                eprintln!("{}:{} in {}: {error}", self.network, leg.place, leg.talk);
            }
            race(self.ending.cancelled(), sleep(backoff.wait(failures, 0.0))).await;
        }
    }

    /// Delivers the messages of a leg, one after the other, until the program ends.
    async fn follow(&self, network: &impl Network, leg: &Leg) -> Result<(), String> {
        let mut place = String::new();
        for byte in leg.place.bytes() {
            let _ = match byte.is_ascii_alphanumeric() || b"-._@".contains(&byte) {
                true => write!(place, "{}", char::from(byte)),
                false => write!(place, "%{byte:02x}"),
            };
        }
        let path = format!("/talks/{}/events?leg={}:{place}", leg.talk, self.network);
        let mut response = self.ask(&path, None).await.map_err(|problem| problem.text)?;
        let mut text = Vec::new();
        loop {
            let chunk = match race(self.ending.cancelled(), response.chunk()).await {
                First::Left(()) => return Ok(()),
                First::Right(chunk) => chunk.map_err(|error| error.to_string())?.ok_or("the hub ended")?,
            };
            text.extend(&chunk);
            while let Some(end) = text.windows(2).position(|bytes| bytes == b"\n\n") {
                let event: Vec<u8> = text.drain(..end + 2).collect();
                let data = event.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"data: "));
                if let Some(message) = data.and_then(|data| serde_json::from_slice(data).ok()) {
                    network.deliver(self, leg, &message).await?;
                }
                if self.ending.is_cancelled() {
                    return Ok(());
                }
            }
            if text.len() > EVENT_LEN_MAX {
                return Err("the hub said something too long".to_owned());
            }
        }
    }

    /// Takes the right to send a message, which no program gets twice. `false` if another one had it.
    ///
    /// # Errors
    /// The right may be gone, so that the message must not be sent.
    pub async fn claim(&self, leg: &Leg, message: &Message) -> Result<bool, String> {
        let body = json!({ "leg": format!("{}:{}", self.network, leg.place), "position": message.position });
        match self.ask(&format!("/talks/{}/claims", leg.talk), Some(body)).await {
            Ok(_) => Ok(true),
            Err(Problem { status: Some(StatusCode::CONFLICT), .. }) => Ok(false),
            Err(problem) => Err(problem.text),
        }
    }

    /// Says once what was said in a leg.
    ///
    /// # Errors
    /// The hub did not take it, or may have; a repetition with the same id is the same message.
    pub async fn say(&self, leg: &Leg, speaker: &str, text: &str, id: &str) -> Result<(), Problem> {
        let place = format!("{}:{}", self.network, leg.place);
        let body = json!({ "name": speaker, "text": shortened(text, TEXT_LEN_MAX), "leg": place, "id": id });
        self.ask(&format!("/talks/{}/messages", leg.talk), Some(body)).await.map(drop)
    }

    /// Asks the hub for the legs of the network.
    ///
    /// # Errors
    /// The hub did not answer.
    pub async fn known_legs(&self) -> Result<BTreeSet<Leg>, Problem> {
        let status: Value = self.ask("/status", None).await?.json().await?;
        let (talks, mut all) = (status.as_object().into_iter().flatten(), BTreeSet::new());
        for (talk, status) in talks {
            let legs = status["legs"].as_object().into_iter().flat_map(|legs| legs.keys());
            let places = legs.filter_map(|leg| leg.strip_prefix(self.network)?.strip_prefix(':'));
            all.extend(places.map(|place| Leg { talk: talk.clone(), place: place.to_owned() }));
        }
        Ok(all)
    }

    /// Sends a request; one with a body is a `POST`.
    async fn ask(&self, path: &str, body: Option<Value>) -> Result<Response, Problem> {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = self.token.as_ref().and_then(Token::header) {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let request = request.body(body.map_or(String::new(), |body| body.to_string()));
        let response =
            self.client.request(request.map_err(|error| Problem { status: None, text: error.to_string() })?).await?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => {
                let text = response.text().await.unwrap_or_default();
                Err(Problem { status: Some(status), text: format!("{status}: {}", text.trim_end()) })
            }
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem { status: None, text: error.to_string() }
    }
}

/// A text of at most `len_max` bytes, and a mark if it was longer.
fn shortened(text: &str, len_max: usize) -> String {
    if text.len() <= len_max {
        return text.to_owned();
    }
    let fits = |at: &usize| *at <= len_max - MARK.len();
    let end = text.char_indices().map(|(at, _)| at).take_while(fits).last().unwrap_or(0);
    format!("{}{MARK}", &text[..end])
}

const MARK: &str = " […]";
const TEXT_LEN_MAX: usize = 4000;
const EVENT_LEN_MAX: usize = 256 << 10;
/// More than a gateway's legs, each of which has one.
const CONNECTIONS_MAX: usize = 500;
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// The hub says something every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(40);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const RETRY_WAIT_MIN: Duration = Duration::from_millis(250);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(30);
const END_MAX: Duration = Duration::from_secs(2);
