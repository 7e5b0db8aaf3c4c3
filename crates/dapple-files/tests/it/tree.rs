//! The tree without a protocol.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use dapple_files::{Access, AttributeChange, FileTime, Kind, NewTime, Tree};

use crate::path;

fn error<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.expect_err("it is refused").raw_os_error().unwrap_or(0)
}

#[test]
fn files_directories_and_links() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let at = |name: &str| dir.path().join(name);
    crate::runtime().block_on(async {
        let tree = Tree::open(dir.path()).await.expect("a tree");
        assert_eq!(tree.make_dir(&path("d"), 0o750, None).await.expect("made").mode, 0o750);
        let made = Access { write: true, read: true, create: Some(0o600), only_new: true, ..Access::default() };
        let file = tree.open_file(&path("d/f"), made, None).await.expect("made");
        assert_eq!(error(tree.open_file(&path("d/f"), made, None).await), libc_exist());
        let found = tree.stat(&path("d/f")).await.expect("attributes");
        assert_eq!((found.kind, found.mode, found.len), (Kind::File, 0o600, 0));
        tree.write(&file, found.node, 3, "abc", None).await.expect("written");
        assert_eq!(std::fs::read(at("d/f")).expect("the file"), b"\0\0\0abc");
        let time = FileTime { seconds: 1_000_000_000, nanoseconds: 5 };
        let change = AttributeChange {
            len: Some(4),
            mode: Some(0o640),
            modified: Some(NewTime::At(time)),
            ..AttributeChange::default()
        };
        let changed = tree.set_attributes(&path("d/f"), change, None).await.expect("changed");
        assert_eq!((changed.len, changed.mode, changed.modified), (4, 0o640, time));
        assert_ne!(changed.tag(), found.tag());
        assert_eq!(tree.link(&path("d/f"), &path("g"), None).await.expect("linked").links, 2);
        assert_eq!(tree.symlink(b"../anything", &path("d/l"), None).await.expect("made").kind, Kind::Link);
        assert_eq!(tree.read_link(&path("d/l")).await.expect("the text"), b"../anything");
        let names: Vec<_> = tree.list(&path("d")).await.expect("a list").into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, [b"f".to_vec(), b"l".to_vec()]);
        assert_eq!(error(tree.remove_dir(&path("d"), None).await), rustix::io::Errno::NOTEMPTY.raw_os_error());
        tree.rename(&path("g"), &path("d/l"), true, None).await.expect("renamed");
        assert_eq!(error(tree.rename(&path("d/l"), &path("d/f"), false, None).await), libc_exist());
        tree.remove_file(&path("d/l"), None).await.expect("removed");
        tree.remove_file(&path("d/f"), None).await.expect("removed");
        tree.sync(&path("d")).await.expect("synced");
        tree.remove_dir(&path("d"), None).await.expect("removed");
        assert!(tree.list(&path("")).await.expect("a list").is_empty());
        assert!(error(tree.remove_dir(&path(""), None).await) != 0, "the root stays");
        let space = tree.space().await.expect("the room");
        assert!(space.available <= space.free && space.free <= space.total && space.total > 0);
    });
}

#[test]
fn a_listing_in_pages_survives_changes() {
    let dir = tempfile::tempdir().expect("a directory");
    let name = |number: usize| format!("{number:05}");
    (0..20_000).for_each(|number| std::fs::write(dir.path().join(name(number)), "").expect("a file"));
    crate::runtime().block_on(async {
        let tree = Tree::open(dir.path()).await.expect("a tree");
        let (mut seen, mut after, mut pages) = (Vec::new(), Vec::new(), 0);
        loop {
            let page = tree.page(&path(""), &after).await.expect("a page");
            assert!(page.entries.len() <= 4096);
            seen.extend(page.entries.into_iter().map(|entry| entry.name));
            let Some(next) = page.next else { break };
            after = next;
            pages += 1;
            // A name behind the listing and one before it go, and others come.
            for (gone, new) in [(pages, "0"), (19_000 + pages, "9")] {
                std::fs::remove_file(dir.path().join(name(gone))).expect("removed");
                std::fs::write(dir.path().join(format!("{new}{pages}-new")), "").expect("a file");
            }
        }
        assert!(pages >= 4 && seen.is_sorted());
        let stayed: Vec<_> = seen.iter().filter(|name| !name.ends_with(b"-new")).collect();
        let there = |number: &usize| *number < 19_001 || *number > 19_000 + pages;
        assert_eq!(stayed.len(), (0..20_000).filter(there).count(), "each name that was there when it was reached");
        assert_eq!(seen.len() - stayed.len(), pages, "the new names that came before they were reached");
        // Without changes the names are read once, and are the same.
        let all = tree.list(&path("")).await.expect("a list");
        assert_eq!(all.len(), 20_000);
        let gone = tree.page(&path(""), &all[19_999].name).await.expect("a page");
        assert!(gone.entries.is_empty() && gone.next.is_none());
    });
}

fn libc_exist() -> i32 {
    rustix::io::Errno::EXIST.raw_os_error()
}

#[test]
fn links_and_devices_are_not_opened() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("secret"), "secret").expect("a file");
    std::fs::create_dir(dir.path().join("in")).expect("a directory");
    symlink("../secret", dir.path().join("in/l")).expect("a link");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("in/p"), rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    crate::runtime().block_on(async {
        let tree = Tree::open(dir.path().join("in")).await.expect("a tree");
        let (read, write) = (
            Access { read: true, ..Access::default() },
            Access { write: true, create: Some(0o600), ..Access::default() },
        );
        for access in [read, write] {
            assert_eq!(error(tree.open_file(&path("l"), access, None).await), rustix::io::Errno::LOOP.raw_os_error());
            // It would wait for the other end for ever.
            assert_eq!(error(tree.open_file(&path("p"), access, None).await), rustix::io::Errno::NXIO.raw_os_error());
        }
        assert!(tree.upload(&path("l"), 0o600).await.is_err() && tree.upload(&path("p"), 0o600).await.is_err());
        let change = AttributeChange { mode: Some(0o777), ..AttributeChange::default() };
        assert!(tree.set_attributes(&path("l"), change, None).await.is_err());
        let owned = AttributeChange {
            modified: Some(NewTime::At(FileTime { seconds: 1, nanoseconds: 0 })),
            ..AttributeChange::default()
        };
        tree.set_attributes(&path("l"), owned, None).await.expect("the link's own time");
    });
    let secret = std::fs::metadata(dir.path().join("secret")).expect("attributes");
    assert!(secret.mtime() > 1 && secret.permissions().mode() & 0o777 != 0o777, "the link was not followed");
}

#[test]
fn an_upload_keeps_the_permissions_and_leaves_nothing_when_dropped() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("f");
    std::fs::write(&file, "old").expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("permissions");
    crate::runtime().block_on(async {
        let tree = Tree::open(dir.path()).await.expect("a tree");
        let upload = tree.upload(&path("f"), 0o666).await.expect("an upload");
        upload.file().write_all_at(0, "new").await.expect("written");
        assert_eq!(std::fs::read_to_string(&file).expect("the file"), "old");
        assert_eq!(tree.list(&path("")).await.expect("a list").len(), 1);
        let dropped = tree.upload(&path("g"), 0o666).await.expect("an upload");
        dropped.file().write_all_at(0, "never").await.expect("written");
        drop(dropped);
        upload.commit(None, false, true).await.expect("committed");
        let taken = tree.upload(&path("f"), 0o666).await.expect("an upload");
        assert_eq!(error(taken.commit(None, true, false).await), libc_exist());
    });
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "new");
    assert_eq!(std::fs::metadata(&file).expect("attributes").permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a list").count(), 1);
}

#[test]
fn extended_attributes_of_users_only() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    std::fs::write(dir.path().join("f"), "").expect("a file");
    crate::runtime().block_on(async {
        let tree = Tree::open(dir.path()).await.expect("a tree");
        let (file, name) = (path("f"), OsStr::new("user.color"));
        assert_eq!(tree.extended(&file, name).await.expect("none"), None);
        tree.set_extended(&file, name, Some(b"red".to_vec()), None).await.expect("set");
        assert_eq!(tree.extended(&file, name).await.expect("one").as_deref(), Some(&b"red"[..]));
        assert_eq!(tree.list_extended(&file).await.expect("names"), ["user.color"]);
        tree.set_extended(&file, name, None, None).await.expect("removed");
        assert!(tree.list_extended(&file).await.expect("names").is_empty());
        for name in ["security.selinux", "trusted.x", "system.posix_acl_access", "x"] {
            assert!(tree.set_extended(&file, OsStr::new(name), Some(Vec::new()), None).await.is_err(), "{name}");
        }
    });
}

#[test]
fn attributes_change_of_one_file_although_others_rename_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    let (stop, swap) = (std::sync::atomic::AtomicBool::new(false), (at("x"), at("y")));
    for file in [&swap.0, &swap.1] {
        std::fs::write(file, "0123456789").expect("a file");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                renameat_with(CWD, &swap.0, CWD, &swap.1, RenameFlags::EXCHANGE).expect("swapped");
            }
        });
        let mixed = crate::runtime().block_on(async {
            let tree = Tree::open(dir.path()).await.expect("a tree");
            let mut mixed = 0;
            for round in 1..=1500_u32 {
                let time = FileTime { seconds: i64::from(round), nanoseconds: 0 };
                let (mode, modified) = (0o600 + round % 64, Some(NewTime::At(time)));
                let change = AttributeChange {
                    mode: Some(mode),
                    modified,
                    len: Some(u64::from(round)),
                    ..AttributeChange::default()
                };
                let changed = tree.set_attributes(&path("x"), change, None).await.expect("changed");
                let is_one = (changed.mode, changed.modified, changed.len) == (mode, time, u64::from(round));
                mixed += u32::from(!is_one);
            }
            mixed
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(mixed, 0, "changes went to two files");
    });
}

#[test]
fn an_upload_keeps_owner_permissions_and_access_list() {
    use rustix::fs::{Gid, Uid, XattrFlags, chown, getxattr, setxattr};
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = dir.path().join("f");
    std::fs::write(&file, "old").expect("a file");
    // The process's mask would take bits of this away.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).expect("permissions");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(&file, Some(Uid::from_raw(12_345)), Some(Gid::from_raw(54_321))).expect("an owner");
    }
    // Version 2 of the kernel's access lists: tag, permissions and number of each entry.
    let entries = [(1_u16, 6_u16, u32::MAX), (2, 4, 1000), (4, 6, u32::MAX), (0x10, 6, u32::MAX), (0x20, 6, u32::MAX)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, may, id) in entries {
        list.extend([tag.to_le_bytes(), may.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let has_lists = setxattr(&file, "system.posix_acl_access", &list, XattrFlags::empty()).is_ok();
    crate::runtime().block_on(async {
        let tree = Tree::open(dir.path()).await.expect("a tree");
        let upload = tree.upload(&path("f"), 0o644).await.expect("an upload");
        upload.file().write_all_at(0, "new").await.expect("written");
        upload.commit(None, false, true).await.expect("committed");
    });
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "new");
    let found = std::fs::metadata(&file).expect("attributes");
    assert_eq!(found.permissions().mode() & 0o7777, 0o666);
    if is_root {
        assert_eq!((found.uid(), found.gid()), (12_345, 54_321));
    }
    if has_lists {
        let mut kept = [0; 1024];
        let len = getxattr(&file, "system.posix_acl_access", &mut kept).expect("the list");
        assert_eq!(kept[..len], list);
    }
}
