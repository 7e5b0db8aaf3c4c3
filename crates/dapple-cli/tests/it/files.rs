//! Files, through each of the ways in which a server reads them.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{Server, Site, eventually, noise};

#[test]
fn with_io_uring_and_without_it_is_the_same() {
    let outer = Site::new();
    outer.write("secret.txt", "secret");
    let sizes = [0, 1, 4_096, 65_536, 65_537, 300_000, 2_000_000];
    for size in sizes {
        outer.write(&format!("site/{size}.bin"), noise(size, size as u64));
    }
    outer.write("site/folder/index.html", "index");
    let site = outer.path.join("site");
    symlink("../secret.txt", site.join("out")).unwrap();
    symlink(site.join("1.bin"), site.join("absolute-in")).unwrap();
    symlink("folder/index.html", site.join("in")).unwrap();
    assert!(Command::new("mkfifo").arg(site.join("fifo")).status().unwrap().success());
    // With a cache, without one for large files, and without a check of links.
    for (io_uring, options) in [true, false]
        .into_iter()
        .flat_map(|on| [&[][..], &["--cache-mb", "1"], &["--follow"]].into_iter().map(move |options| (on, options)))
    {
        let server = Server::start_with_files_by(&site, io_uring, options);
        let what = format!("io_uring {io_uring}, {options:?}");
        let mut client = server.connect();
        for size in sizes {
            let response = client.get(&format!("/{size}.bin"));
            assert_eq!(response.status, 200, "{what}");
            assert!(response.body == noise(size, size as u64), "{what}: {size} bytes");
            let part = client.request("GET", &format!("/{size}.bin"), "Range: bytes=1-100000\r\n");
            if size > 1 {
                assert!(part.body == noise(size, size as u64)[1..size.min(100_001)], "{what}: a part of {size} bytes");
            }
        }
        let follows = options.contains(&"--follow");
        for (path, status) in [
            ("/folder/", 200),
            ("/folder", 301),
            ("/in", 200),
            ("/absolute-in", 200),
            ("/out", if follows { 200 } else { 404 }),
            // No process writes to the pipe, and no request waits for that.
            ("/fifo", 404),
            ("/none", 404),
            ("/1.bin/none", 404),
        ] {
            assert_eq!(client.get(path).status, status, "{what}: {path}");
        }
    }
}

/// A file that is replaced and changed while clients request it arrives whole, in one of its
/// states.
#[test]
fn a_changing_file_arrives_whole() {
    for io_uring in [true, false] {
        let site = Site::new();
        site.write("page", vec![0; 50_000]);
        let server = Server::start_with_files_by(&site.path, io_uring, &[]);
        let mut client = server.connect();
        for state in 1..100u8 {
            site.write("next", vec![state; 50_000]);
            std::fs::rename(site.path.join("next"), site.path.join("page")).unwrap();
            let body = client.get("/page").body;
            assert!(body.len() == 50_000 && body.iter().all(|&byte| byte == body[0]) && body[0] <= state);
        }
    }
}

/// Files with cached names but without cached content: they are opened at once, and handed to the
/// task that reads them.
#[test]
fn uncached_files_arrive_whole_and_are_closed_again() {
    let site = Site::new();
    let sizes = [1, 16_384, 65_536, 65_537, 300_000];
    for (number, size) in sizes.into_iter().enumerate() {
        site.write(&format!("{number}.bin"), noise(size, size as u64));
    }
    for io_uring in [true, false] {
        (0..sizes.len()).for_each(|number| forget(&site.path.join(format!("{number}.bin"))));
        let server = Server::start_with_files_by(&site.path, io_uring, &[]);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut client = server.connect();
                    for (number, size) in sizes.into_iter().enumerate() {
                        assert!(client.get(&format!("/{number}.bin")).body == noise(size, size as u64), "{size} bytes");
                    }
                });
            }
        });
        let is_closed = eventually(Duration::from_secs(30), || open_files(&server, &site.path) == 0);
        assert!(
            is_closed,
            "io_uring {io_uring}: {} files are open, though all are in memory",
            open_files(&server, &site.path)
        );
    }
}

/// Makes the kernel drop the cached content of a file on a disk.
fn forget(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    // Content that is not on the disk yet cannot be dropped.
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// The number of files in `folder` that a server has open.
fn open_files(server: &Server, folder: &Path) -> usize {
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap();
    let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    targets.filter(|target| target.parent() == Some(folder)).count()
}
