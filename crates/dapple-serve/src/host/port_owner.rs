//! The process that holds a TCP port, as far as `/proc` shows it.

use std::fs;
use std::path::Path;

/// A short description of the process that listens on `port`, such as `nginx (process 1234)`;
/// `None` if it is unknown.
pub(super) fn port_owner(port: u16) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let listening: Vec<Listening> = tables.iter().flat_map(|table| listening(table, port)).collect();
    let owner = listening.iter().find_map(|socket| process_with(&format!("socket:[{}]", socket.inode)));
    owner.or_else(|| listening.first().map(|socket| format!("a process of the user with id {}", socket.user)))
}

/// A listening socket: one line of the table.
#[derive(Debug, PartialEq, Eq)]
struct Listening {
    user: u32,
    inode: u64,
}

/// The sockets in a `/proc/net` table that listen on `port`.
fn listening(table: &str, port: u16) -> Vec<Listening> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, hex_port) = fields.get(1)?.rsplit_once(':')?;
        let matches = u16::from_str_radix(hex_port, 16).ok()? == port && *fields.get(3)? == LISTEN;
        matches.then_some(())?;
        Some(Listening { user: fields.get(7)?.parse().ok()?, inode: fields.get(9)?.parse().ok()? })
    };
    table.lines().skip(1).filter_map(line).collect()
}

/// The process that has this socket open, if this user may see its open files.
fn process_with(socket: &str) -> Option<String> {
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Ok(id) = process.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let Ok(files) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        if files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|target| target == Path::new(socket))) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("{} (process {id})", name.trim()));
        }
    }
    None
}

/// The code of the listening state in the tables.
const LISTEN: &str = "0A";

#[cfg(test)]
mod tests {
    use super::{Listening, listening, port_owner};

    #[test]
    fn the_table_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0\n\
             1: 0100007F:1F90 0100007F:A0A0 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0\n\
             2: broken\n";
        assert_eq!(listening(table, 8080), [Listening { user: 1000, inode: 4711 }]);
        assert_eq!(listening(table, 80), []);
    }

    #[test]
    fn this_process_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let owner = port_owner(listener.local_addr().unwrap().port()).unwrap();
        assert!(owner.contains(&format!("(process {})", std::process::id())), "{owner}");
    }
}
