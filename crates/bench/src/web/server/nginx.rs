//! The peer `nginx`, as packaged.

use super::certificate::Certificate;
use super::{Setting, find_program};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// `multi_accept`: whether a worker accepts all waiting connections at each poll, or one.
pub(super) fn command(
    setting: &Setting,
    port: u16,
    certificate: Option<&Certificate>,
    multi_accept: bool,
) -> Result<Command> {
    let program = find_program("nginx").context("nginx is not installed: apt-get install nginx")?;
    let prefix = setting.scratch.join("nginx");
    std::fs::create_dir_all(&prefix)?;
    let config = prefix.join("nginx.conf");
    let text = config_text(&setting.site.root(), setting.workers, port, certificate, multi_accept);
    std::fs::write(&config, text).context("cannot write nginx's configuration")?;
    let mut command = setting.command(&program)?;
    command.arg("-p").arg(&prefix).arg("-c").arg(&config).arg("-e").arg("stderr");
    Ok(command)
}

/// Best form for popular files: open files are cached, nothing is logged, connections are kept,
/// `reuseport` spreads the connections over the workers. `multi_accept` shortens tails; medians are
/// shorter without it. All files that nginx writes stay below its prefix.
///
/// Open files and connections together stay below the limit on descriptors: without free ones,
/// nginx answers with errors.
fn config_text(
    root: &Path,
    workers: usize,
    port: u16,
    certificate: Option<&Certificate>,
    multi_accept: bool,
) -> String {
    let accept = if multi_accept { "on" } else { "off" };
    // The master of a root-owned nginx switches its workers to a user without access to a private
    // temporary directory.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let reuse = if workers > 1 { " reuseport" } else { "" };
    let ssl = if certificate.is_some() { " ssl" } else { "" };
    let certificate = certificate.map_or_else(String::new, |certificate| {
        format!(
            "ssl_certificate {};
    ssl_certificate_key {};
    ssl_protocols TLSv1.3;",
            certificate.chain.display(),
            certificate.key.display()
        )
    });
    format!(
        "daemon off;
{user}
worker_processes {workers};
worker_rlimit_nofile 20000;
pid nginx.pid;
error_log stderr crit;
events {{ worker_connections 16384; multi_accept {accept}; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  tcp_nodelay on;
  keepalive_timeout 75s;
  keepalive_requests 1000000000;
  open_file_cache max=10000 inactive=60s;
  open_file_cache_valid 60s;
  default_type text/html;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {{
    listen 127.0.0.1:{port}{ssl} backlog=4096{reuse};
    {certificate}
    root {root};
  }}
}}
",
        root = root.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_stays_on_the_loopback_address_and_in_its_prefix() {
        let config = config_text(Path::new("/www"), 2, 8123, None, true);
        assert!(config.contains("multi_accept on;"));
        assert!(config.contains("listen 127.0.0.1:8123 backlog=4096 reuseport;"));
        assert!(config.contains("worker_processes 2;") && config.contains("root /www;"));
        assert!(!config.contains("/var") && !config.contains("ssl"));
        let certificate = Certificate { chain: "/c".into(), key: "/k".into() };
        let config = config_text(Path::new("/www"), 1, 8123, Some(&certificate), false);
        assert!(config.contains("multi_accept off;"));
        assert!(config.contains("listen 127.0.0.1:8123 ssl backlog=4096;") && config.contains("ssl_certificate /c;"));
    }
}
