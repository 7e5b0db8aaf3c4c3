//! Directories with more names than one answer has.

use std::collections::HashSet;
use std::fs;

use crate::file_service::{MountPoint, Service, can_mount, place};

const COUNT: usize = 120_000;

/// The most memory that the service has used, in MB.
fn peak_mb(service: &Service) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", service.child.id())).expect("the process");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the peak");
    peak.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") / 1024
}

#[test]
fn a_large_directory_is_listed_as_a_whole_in_little_memory() {
    let place = place();
    let large = place.path().join("tree/large");
    fs::create_dir(&large).expect("a directory");
    (0..COUNT)
        .for_each(|number| fs::write(large.join(format!("a file with a longer name {number}")), "").expect("a file"));
    let service = Service::start(place.path(), &["--addr", "127.0.0.1:0"]);
    let url = format!("{}/large/", service.url);
    let before = peak_mb(&service);
    let found = service.curl(&["-X", "PROPFIND", "-H", "Depth: 1", &url]);
    assert!(found.status.success());
    let found = String::from_utf8(found.stdout).expect("text");
    assert_eq!(found.matches("<D:href>").count(), COUNT + 1);
    let page = String::from_utf8(service.curl(&[&url]).stdout).expect("text");
    assert!(page.contains("and more") && page.matches("<tr data-name").count() < 15_000);
    if can_mount() {
        let mount = MountPoint::new(&service, "m");
        let at = mount.dir.join("large");
        let names = || fs::read_dir(&at).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        assert_eq!(names().collect::<HashSet<_>>().len(), COUNT);
        // Names that go while a program reads are no harm to the others.
        let mut reading = names();
        let mut first: HashSet<_> = reading.by_ref().take(50_000).collect();
        first.iter().take(100).for_each(|name| fs::remove_file(at.join(name)).expect("removed"));
        first.extend(reading);
        assert_eq!(first.len(), COUNT);
        assert_eq!(names().count(), COUNT - 100);
        mount.unmount();
    }
    let grown = peak_mb(&service) - before;
    assert!(grown < 64, "{grown} MB for a directory");
    assert!(service.stop());
}
