//! `INFO`.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;
use dapple::store::Error;

use super::commands::{Answer, REDIS_VERSION};
use super::reply::Reply;
use super::session::Context;
use super::{DATABASES, name};

/// The sections, in the order in which they are shown.
const SECTIONS: [&str; 6] = ["Server", "Clients", "Persistence", "Stats", "Replication", "Keyspace"];

/// Runs `INFO` with the names of sections; without any it shows all.
pub(super) async fn info(context: Context<'_>, wanted: &[Bytes]) -> Answer {
    const ALL: [&str; 3] = ["all", "default", "everything"];
    let is_named = |name: &str| wanted.iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let shows_all = wanted.is_empty() || ALL.into_iter().any(is_named);
    let mut text = String::new();
    for section in SECTIONS {
        if shows_all || is_named(section) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            let lines = lines(context, section).await?;
            // Writing to memory does not fail.
            let _ = write!(text, "{gap}# {section}\r\n{lines}");
        }
    }
    Ok(Reply::Text(text))
}

async fn lines(context: Context<'_>, section: &str) -> Result<String, Error> {
    let service = context.service;
    Ok(match section {
        "Server" => {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            format!(
                "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nserver_name:dapple\r\nprocess_id:{}\r\n\
                 tcp_port:{}\r\nserver_time_usec:{}\r\n",
                std::process::id(),
                service.port,
                since.as_micros(),
            )
        }
        "Clients" => {
            format!("connected_clients:{}\r\nmaxclients:{}\r\n", service.clients_len(), service.admission.max())
        }
        "Persistence" => "loading:0\r\naof_enabled:1\r\n".to_owned(),
        "Stats" => {
            let (channels, patterns) = service.broker.names().await;
            format!(
                "total_connections_received:{}\r\ntotal_commands_processed:{}\r\npubsub_channels:{channels}\r\n\
                 pubsub_patterns:{patterns}\r\nclient_output_buffer_limit_disconnections:{}\r\n",
                service.next_client.load(Ordering::Relaxed) - 1,
                service.commands.load(Ordering::Relaxed),
                service.broker.counters().cut.load(Ordering::Relaxed),
            )
        }
        "Replication" => "role:master\r\nconnected_slaves:0\r\n".to_owned(),
        _ => keyspace(context).await?,
    })
}

/// A line for each database that has keys.
async fn keyspace(context: Context<'_>) -> Result<String, Error> {
    let tables = context.service.store.list().await;
    let mut text = String::new();
    for database in 0..DATABASES {
        if tables.iter().any(|table| table.name == name(database)) {
            let keys = context.service.database(database).await?.count().await?;
            if keys > 0 {
                let _ = write!(text, "db{database}:keys={keys}\r\n");
            }
        }
    }
    Ok(text)
}
