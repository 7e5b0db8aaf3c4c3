//! A server of files that is killed while mounts change them.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::file_service::{MountPoint, Service, can_mount, place};

/// Makes each kind of change that would fail if it happened twice; stops at the first that fails.
const CHANGES: &str = "cd \"$0\" || exit 1
n=0
while [ ! -e \"$1\" ]; do
    n=$((n + 1))
    mkdir a$n && mv a$n b$n && (set -C; : > b$n/new) && ln b$n/new link && ln -s x b$n/soft && echo $n >> log &&
        rm link b$n/soft && mv b$n/new moved && rm moved && rmdir b$n || { echo \"failed at $n\"; exit 1; }
done
echo $n";

#[test]
fn changes_happen_once_however_often_the_server_is_killed() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mut service = Service::start(place.path(), &["--addr", "127.0.0.1:0"]);
    let addr = service.url.trim_start_matches("https://").to_owned();
    let mount = MountPoint::new(&service, "mounted");
    let stop = place.path().join("stop");
    let mut program = Command::new("sh");
    let program = program.args(["-c", CHANGES]).arg(&mount.dir).arg(&stop).stdout(Stdio::piped()).spawn();
    let program = program.expect("it starts");
    for round in 0..10 {
        sleep(Duration::from_millis(50 + 17 * round));
        service.child.kill().expect("killed");
        service.child.wait().expect("it ended");
        service = Service::start(place.path(), &["--addr", &addr]);
    }
    fs::write(&stop, "").expect("a file");
    let output = program.wait_with_output().expect("it ends");
    let last = String::from_utf8(output.stdout).expect("text");
    let last: usize = last.trim().parse().unwrap_or_else(|_| panic!("{last}"));
    let expected: String = (1..=last).map(|number| format!("{number}\n")).collect();
    assert_eq!(fs::read_to_string(place.path().join("tree/log")).expect("the file"), expected);
    let names: Vec<_> = fs::read_dir(place.path().join("tree")).expect("a directory").flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    mount.unmount();
    assert!(service.stop());
}
