//! Reading again, on SIGHUP, what can change while the server runs. What is broken stays as it was.

use std::sync::Arc;

use dapple::blocking::spawn_blocking;
use tracing::{error, info};

use super::front::Front;
use super::rules::Rules;
use super::site::Site;
use crate::config::{Problems, Sections};
use crate::server::Tls;

/// What a reload needs.
pub(super) struct Reload {
    pub(super) site: Arc<Site>,
    pub(super) sections: Sections,
    pub(super) tls: Option<Arc<Tls>>,
}

impl Reload {
    /// Reads rules and certificates. The access log is opened anew elsewhere.
    pub(super) async fn run(&self, front: &Front) {
        if self.sections.is_any() {
            let sections = self.sections.clone();
            let read = spawn_blocking(move || sections.again()?.read::<Rules>());
            match read.await {
                Ok(Ok(rules)) => {
                    self.site.set_rules(rules).await;
                    info!("the rules were read again");
                }
                Ok(Err(problems)) => keep_rules(&problems),
                Err(error) => error!("the rules stay as they were: {error}"),
            }
        }
        if let Some(tls) = &self.tls {
            match tls.reload().await.map(|()| front.renew()) {
                Ok(Ok(())) => info!("the certificates were read again"),
                Ok(Err(error)) => error!("the certificates of HTTP/3 stay as they were: {error}"),
                Err(error) => error!("the certificates stay as they were: {error}"),
            }
        }
    }
}

fn keep_rules(problems: &Problems) {
    error!("the rules stay as they were: {problems}");
}
