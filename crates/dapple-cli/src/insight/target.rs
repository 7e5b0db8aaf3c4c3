//! The program to look into: an address, or a process.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use dapple::insight::{Attached, attach};
use dapple_client::{Body, Client};

use super::InsightError;

/// The program that the user named.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// The address of a page.
    Addr(String),
    /// The number of a process of the same user.
    Process(u32),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let pid = text.parse().ok().filter(|pid| *pid > 0 && i32::try_from(*pid).is_ok());
            return pid.map(Target::Process).ok_or_else(|| "a process has a number from 1 to 2147483647".to_owned());
        }
        let has_port =
            text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        match has_port {
            true => Ok(Target::Addr(text.to_owned())),
            false => {
                Err("write the address of --insight, such as 127.0.0.1:7777, or the number of a process".to_owned())
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Addr(addr) => f.write_str(addr),
            Target::Process(pid) => write!(f, "process {pid}"),
        }
    }
}

/// The page of a program.
pub(super) struct Page {
    addr: String,
    token: Option<String>,
    client: Client,
    /// Keeps the page of a process.
    attached: Option<Attached>,
}

impl Page {
    /// Attaches to a process; of an address, nothing is asked yet. Blocks for up to five seconds.
    pub(super) fn open(target: &Target, token: Option<String>, limit: Duration) -> Result<Page, InsightError> {
        let (addr, token, attached) = match target {
            Target::Addr(addr) => (addr.clone(), token, None),
            Target::Process(pid) => {
                let attached = attach(*pid).map_err(InsightError::Attach)?;
                (attached.addr().to_string(), Some(attached.token().to_owned()), Some(attached))
            }
        };
        let client = Client::builder().head_timeout(limit).body_bytes_max(FILE_BYTES_MAX).build();
        let client = client.map_err(|error| InsightError::Connect(addr.clone(), error))?;
        Ok(Page { addr, token, client, attached })
    }

    #[cfg(feature = "top")]
    pub(super) fn addr(&self) -> &str {
        &self.addr
    }

    /// Asks for a path of the page.
    pub(super) async fn ask(&self, path: &str) -> Result<Vec<u8>, InsightError> {
        let failed = |error| match &self.attached {
            Some(_) => InsightError::Gone(error),
            None => InsightError::Connect(self.addr.clone(), error),
        };
        let mut request = http::Request::get(format!("http://{}{path}", self.addr));
        if let Some(token) = &self.token {
            request = request.header(http::header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Body::empty());
        let request = request.map_err(|error| InsightError::Refused(self.addr.clone(), error.to_string()))?;
        let response = self.client.request(request).await.map_err(failed)?;
        if !response.status().is_success() {
            let why = response.text().await.map_err(failed)?;
            return Err(InsightError::Refused(self.addr.clone(), why.trim_end().to_owned()));
        }
        Ok(response.bytes().await.map_err(failed)?.to_vec())
    }
}

const FILE_BYTES_MAX: usize = 1 << 30;
