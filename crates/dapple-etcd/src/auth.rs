//! User and password, and the token that etcd gives for them.

use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use dapple_io::time::{Instant, timeout_at};
use http::HeaderValue;
use serde::Serialize;

use crate::call::{Call, Inner, Replied, Safety};
use crate::error::{Error, Reason};
use crate::wire::Token;

/// The user, and the present token. Tokens expire after five minutes without use, and with the member that gave them; the next call that
/// meets such a token gets a new one.
pub(crate) struct Auth {
    user: String,
    password: String,
    token: Mutex<State>,
    /// Held by the one call that gets a token, while the others wait.
    getting: dapple_sync::sync::Mutex<()>,
}

#[derive(Clone, Default)]
enum State {
    #[default]
    None,
    Token(HeaderValue),
    /// etcd knows no users: requests go without a token.
    Unneeded,
}

type Asked<'a> = Pin<Box<dyn Future<Output = Result<Replied<Token>, Error>> + Send + 'a>>;

#[derive(Serialize)]
struct Question<'a> {
    name: &'a str,
    password: &'a str,
}

impl Auth {
    pub(crate) fn new(user: String, password: String) -> Auth {
        Auth { user, password, token: Mutex::default(), getting: dapple_sync::sync::Mutex::new(()) }
    }

    /// The token, from etcd if there is none yet; `None` if etcd needs none.
    pub(crate) async fn token(&self, inner: &Inner, deadline: Instant) -> Result<Option<HeaderValue>, Error> {
        if let Some(token) = self.known() {
            return Ok(token);
        }
        let late = |_| Error::Unavailable {
            message: "no token within the deadline".to_owned(),
            retry_after: std::time::Duration::ZERO,
        };
        let _getting = timeout_at(deadline, self.getting.lock()).await.map_err(late)?;
        if let Some(token) = self.known() {
            return Ok(token);
        }
        let state = match self.authenticate(inner, deadline).await {
            Ok(replied) => State::Token(value_of(&replied.reply.token)?),
            Err(Error::NotApplied { message, .. }) if message.contains("authentication is not enabled") => {
                State::Unneeded
            }
            Err(error) => return Err(error),
        };
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = state;
        Ok(self.known().flatten())
    }

    /// Boxed, because a call and the request for its token call each other.
    fn authenticate<'a>(&'a self, inner: &'a Inner, deadline: Instant) -> Asked<'a> {
        let question = Question { name: &self.user, password: &self.password };
        let call = Call::new("/v3/auth/authenticate", &question, Safety::Read, deadline);
        Box::pin(inner.ask(Call { needs_token: false, ..call }))
    }

    /// etcd does not take this token any more.
    pub(crate) fn forget(&self, token: Option<&HeaderValue>) {
        let mut state = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let is_this = match &*state {
            State::None => false,
            State::Token(present) => Some(present) == token,
            State::Unneeded => token.is_none(),
        };
        if is_this {
            *state = State::None;
        }
    }

    /// etcd does not take the present token any more.
    pub(crate) fn forget_any(&self) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = State::None;
    }

    fn known(&self) -> Option<Option<HeaderValue>> {
        match &*self.token.lock().unwrap_or_else(PoisonError::into_inner) {
            State::None => None,
            State::Token(token) => Some(Some(token.clone())),
            State::Unneeded => Some(None),
        }
    }
}

fn value_of(token: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(token)
        .map_err(|_| Error::not_applied(Reason::Malformed, "the token has characters that no header may have"))?;
    value.set_sensitive(true);
    Ok(value)
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("user", &self.user).finish_non_exhaustive()
    }
}
