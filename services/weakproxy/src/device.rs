//! The device that asks, and the registry's word about it.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode, header};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use dapple::http::relay::Memo;
use dapple::http::{self, Client};
use dapple::serve::bearer::Token;

use crate::fit::Fit;
use crate::proxy::Problem;

/// The devices of a registry.
pub(crate) struct Devices {
    pub(crate) client: Client,
    /// Without a slash at its end.
    pub(crate) registry: String,
    pub(crate) registry_token: Option<Token>,
    /// The password of all devices, if they need one.
    pub(crate) token: Option<Token>,
    /// The name for clients that give none.
    pub(crate) default: Option<String>,
    /// The registry's word about names; `None` is that it has no such device.
    pub(crate) known: Memo<Option<Arc<Fit>>>,
}

impl Devices {
    /// The path in the registry of the device that asks: `devices/DEVICE`, or `users/USER/for/DEVICE`.
    ///
    /// # Errors
    /// The client has to name its device, or give the token.
    pub(crate) fn path(&self, headers: &HeaderMap) -> Result<String, Problem> {
        let login = headers.get(header::PROXY_AUTHORIZATION).and_then(|value| value.to_str().ok()?.split_once(' '));
        let login = login.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"));
        let login = login.and_then(|(_, text)| String::from_utf8(BASE64_STANDARD.decode(text.trim()).ok()?).ok());
        let (name, password) = login.as_deref().and_then(|text| text.split_once(':')).unwrap_or_default();
        if self.token.as_ref().is_some_and(|token| !token.is(password.as_bytes())) {
            return Err(unnamed("the password for this proxy is wrong; it is the token in its --token-file"));
        }
        let name = if name.is_empty() { self.default.as_deref().unwrap_or_default() } else { name };
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@+".contains(&byte);
        let is_name = |name: &&str| name.bytes().all(is_letter) && !matches!(*name, "" | "." | "..");
        match name.split('/').collect::<Vec<_>>()[..] {
            [device] if is_name(&device) => Ok(format!("devices/{device}")),
            [user, device] if [user, device].iter().all(is_name) => Ok(format!("users/{user}/for/{device}")),
            _ => Err(unnamed("name the device: the login for this proxy is DEVICE or USER/DEVICE, as in the registry")),
        }
    }

    /// The abilities of this device. If the registry does not answer, what it said last counts.
    ///
    /// # Errors
    /// The registry has no such device, or did not say anything.
    pub(crate) async fn fit(&self, path: String) -> Result<Arc<Fit>, Problem> {
        let fit = self.known.get(&path, self.ask(&path)).await.map_err(|error| {
            Problem(StatusCode::BAD_GATEWAY, format!("the registry of preferences cannot be asked: {error}"))
        });
        fit?.ok_or_else(|| unnamed(&format!("the registry of preferences has no /{path}; PUT a profile there")))
    }

    async fn ask(&self, path: &str) -> Result<Option<Arc<Fit>>, http::Error> {
        let mut request = http::Request::new(http::Body::empty());
        let url = format!("{}/{path}", self.registry);
        *request.uri_mut() = url.parse().map_err(|_| http::Error::Unsupported("such a URL of a registry"))?;
        let token = self.registry_token.as_ref().and_then(Token::header);
        request.headers_mut().extend(token.map(|token| (header::AUTHORIZATION, token)));
        let response = self.client.request(request).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        Ok(Some(Arc::new(Fit::of(&response.error_for_status()?.json().await?))))
    }
}

fn unnamed(text: &str) -> Problem {
    Problem(StatusCode::PROXY_AUTHENTICATION_REQUIRED, text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(default: Option<&str>, login: &str) -> Option<String> {
        let devices = Devices {
            client: Client::new().unwrap(),
            registry: String::new(),
            registry_token: None,
            token: None,
            default: default.map(str::to_owned),
            known: Memo::new(std::time::Duration::ZERO, 1),
        };
        let mut headers = HeaderMap::new();
        if !login.is_empty() {
            let value = format!("Basic {}", BASE64_STANDARD.encode(login));
            headers.insert(header::PROXY_AUTHORIZATION, value.parse().unwrap());
        }
        devices.path(&headers).ok()
    }

    #[dapple::test]
    async fn a_login_names_a_device_or_a_user_at_one() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(path(None, "phone:"), some("devices/phone"));
        assert_eq!(path(Some("tv"), "ann@x/phone:secret"), some("users/ann@x/for/phone"));
        assert_eq!((path(Some("tv"), ""), path(Some("ann/tv"), ":")), (some("devices/tv"), some("users/ann/for/tv")));
        for odd in ["", "..:", "a/..:", "../b:", "/phone:", "ann/:", "a/b/c:", "a%2fb:", "a b:", "a?b:", "\u{e9}:"] {
            assert_eq!(path(None, odd), None, "{odd}");
        }
    }
}
