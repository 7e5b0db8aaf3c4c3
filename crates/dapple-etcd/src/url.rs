//! Places in etcd, as a text.

use std::fmt;
use std::str::FromStr;

use crate::builder::endpoint;
use crate::client::Etcd;

/// A place in etcd: `etcd://HOST:PORT[,HOST:PORT…]/PREFIX`. All keys of a service are below its prefix.
///
/// ```
/// use dapple_etcd::EtcdUrl;
///
/// let url: EtcdUrl = "etcd://10.0.0.9:2379,10.0.0.10:2379/shop".parse()?;
/// assert_eq!(url.root(), "/shop/");
/// assert!("10.0.0.9:2379".parse::<EtcdUrl>().is_err());
/// # Ok::<(), dapple_etcd::EtcdUrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUrl {
    endpoints: Vec<String>,
    prefix: String,
}

/// The reason why a text is no [`EtcdUrl`]: a sentence that says how to write one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EtcdUrlError(String);

impl EtcdUrl {
    /// The place below `prefix`; slashes around it do not count.
    ///
    /// # Errors
    ///
    /// An endpoint is no `HOST:PORT`, or there is none; the prefix is empty or has control characters.
    pub fn new<A: Into<String>>(endpoints: impl IntoIterator<Item = A>, prefix: &str) -> Result<EtcdUrl, EtcdUrlError> {
        let endpoints: Vec<String> = endpoints.into_iter().map(Into::into).collect();
        let prefix = prefix.trim_matches('/').to_owned();
        endpoints
            .iter()
            .try_for_each(|one| endpoint(one).map(drop))
            .map_err(|e| EtcdUrlError(e.message().to_owned()))?;
        if endpoints.is_empty() || prefix.is_empty() || prefix.contains(char::is_control) {
            return Err(wrong(&format!("{}/{prefix}", endpoints.join(","))));
        }
        Ok(EtcdUrl { endpoints, prefix })
    }

    /// A client of its members.
    #[must_use]
    pub fn client(&self) -> Etcd {
        Etcd::new(self.endpoints.clone()).expect("the endpoints were checked")
    }

    /// The beginning of all keys.
    #[must_use]
    pub fn root(&self) -> String {
        format!("/{}/", self.prefix)
    }
}

impl FromStr for EtcdUrl {
    type Err = EtcdUrlError;

    fn from_str(text: &str) -> Result<EtcdUrl, EtcdUrlError> {
        let (endpoints, prefix) =
            text.strip_prefix("etcd://").and_then(|rest| rest.split_once('/')).ok_or_else(|| wrong(text))?;
        EtcdUrl::new(endpoints.split(',').map(str::trim), prefix)
    }
}

impl fmt::Display for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}/{}", self.endpoints.join(","), self.prefix)
    }
}

fn wrong(text: &str) -> EtcdUrlError {
    let text = text.escape_debug();
    EtcdUrlError(format!("`{text}` is no place in etcd; write etcd://HOST:PORT[,HOST:PORT…]/PREFIX"))
}

#[cfg(test)]
mod tests {
    use super::EtcdUrl;

    #[test]
    fn a_url_survives_parsing() {
        let url: EtcdUrl = "etcd://a:1, [::1]:2//x/y/".parse().unwrap();
        assert_eq!((url.to_string(), url.root()), ("etcd://a:1,[::1]:2/x/y".to_owned(), "/x/y/".to_owned()));
    }

    #[test]
    fn invalid_texts_are_refused_with_the_form() {
        for text in
            ["", "a:1/x", "etcd://a:1", "etcd://a:1/", "etcd:///x", "etcd://a/x", "etcd://a:1,/x", "etcd://a:1/x\n"]
        {
            let error = text.parse::<EtcdUrl>().unwrap_err().to_string();
            assert!(error.contains("HOST:PORT"), "{text}: {error}");
        }
    }
}
