//! The peer `apache`: Apache 2.4 with the event module, as packaged.

use super::certificate::Certificate;
use super::{Setting, find_program};
use anyhow::{Context, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

pub(super) fn command(setting: &Setting, port: u16, certificate: Option<&Certificate>) -> Result<Command> {
    let program = find_program("apache2").context("apache2 is not installed: apt-get install apache2")?;
    let prefix = setting.scratch.join("apache");
    std::fs::create_dir_all(&prefix)?;
    if rustix::process::geteuid().is_root() {
        // Its children run as another user, who needs access to the files.
        let folders = [setting.scratch, &setting.site.root()].map(Path::to_owned);
        for folder in folders.iter().flat_map(|folder| folder.ancestors().take(3)).filter(|folder| is_ours(folder)) {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
        }
    }
    let config = prefix.join("apache.conf");
    let text = config_text(&prefix, &setting.site.root(), setting.workers, port, certificate);
    std::fs::write(&config, text).context("cannot write Apache's configuration")?;
    let mut command = setting.command(&program)?;
    // Its greeting, which no log level silences, goes to this file from the start.
    command.arg("-E").arg(prefix.join("error.log"));
    command.arg("-D").arg("FOREGROUND").arg("-d").arg(&prefix).arg("-f").arg(&config);
    Ok(command)
}

/// Whether the bench made this folder, and may open it to other users.
fn is_ours(folder: &Path) -> bool {
    folder.components().any(|part| part.as_os_str().to_string_lossy().starts_with(super::super::SCRATCH_PREFIX))
}

/// Best form: as many processes as workers, which stay, with room for 10,000 kept connections; no
/// logging.
fn config_text(prefix: &Path, root: &Path, workers: usize, port: u16, certificate: Option<&Certificate>) -> String {
    let user = if rustix::process::geteuid().is_root() { "User www-data\nGroup www-data" } else { "" };
    let threads = workers * THREADS_EACH;
    let module = |name: &str| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n");
    let mut modules = module("mpm_event") + &module("authz_core");
    let mut tls = String::new();
    if let Some(certificate) = certificate {
        modules.push_str(&module("ssl"));
        tls = format!(
            "SSLEngine on\nSSLCertificateFile {}\nSSLCertificateKeyFile {}\nSSLProtocol TLSv1.3",
            certificate.chain.display(),
            certificate.key.display()
        );
    }
    format!(
        "ServerRoot {prefix}
ServerName localhost
Listen 127.0.0.1:{port}
ListenBacklog 4096
PidFile {prefix}/pid
DefaultRuntimeDir {prefix}
ErrorLog {prefix}/error.log
LogLevel crit
{modules}{user}
StartServers {workers}
ServerLimit {workers}
ThreadLimit {THREADS_EACH}
ThreadsPerChild {THREADS_EACH}
MaxRequestWorkers {threads}
MinSpareThreads 1
MaxSpareThreads {threads}
MaxConnectionsPerChild 0
AsyncRequestWorkerFactor 100
KeepAlive On
KeepAliveTimeout 75
MaxKeepAliveRequests 0
EnableSendfile On
{tls}
DocumentRoot {root}
<Directory />
  AllowOverride None
  Require all granted
</Directory>
",
        prefix = prefix.display(),
        root = root.display(),
    )
}

const THREADS_EACH: usize = 128;

/// Debian's folder of modules.
const MODULES: &str = "/usr/lib/apache2/modules";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apache_stays_on_the_loopback_address_and_in_its_prefix() {
        let config = config_text(Path::new("/p"), Path::new("/www"), 2, 8123, None);
        assert!(config.contains("Listen 127.0.0.1:8123\n") && config.contains("DocumentRoot /www\n"));
        assert!(config.contains("MaxRequestWorkers 256\n") && config.contains("ServerLimit 2\n"));
        assert!(!config.contains("/var") && !config.contains("SSL"));
        assert!(is_ours(Path::new("/tmp/dapple-bench-x/small")) && !is_ours(Path::new("/tmp")));
    }
}
