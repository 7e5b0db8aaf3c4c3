//! Open directories, by each path that a call can take.

use std::io;
use std::os::unix::fs::symlink;

use dapple_io::fs::{Dir, OpenOptions};
use rustix::fs::{CWD, FileType, Mode};

use crate::both_ways;

fn reading() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    options
}

#[test]
fn nothing_outside_is_reached() {
    both_ways(2, async || {
        let dir = tempfile::tempdir()?;
        let site = dir.path().join("site");
        std::fs::create_dir_all(site.join("a/b"))?;
        std::fs::write(dir.path().join("secret"), "secret")?;
        std::fs::write(site.join("a/b/page"), "page")?;
        symlink("../secret", site.join("up"))?;
        symlink("/etc/passwd", site.join("away"))?;
        symlink("b/page", site.join("a/inside"))?;
        symlink("../..", site.join("a/out"))?;
        let root = Dir::open(&site).await?;
        // It is open: it stays the same under another name.
        std::fs::rename(&site, dir.path().join("moved"))?;
        for name in ["a/b/page", "a/inside", "a/b/../b/page", "a/./b/page"] {
            let file = root.open_beneath(name, &reading()).await?;
            assert_eq!(file.read_at(0, 100).await?, b"page", "{name}");
        }
        for name in ["up", "away", "../secret", "a/../../secret", "a/out/secret", "/etc/passwd"] {
            let error = root.open_beneath(name, &reading()).await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::XDEV.raw_os_error()), "{name}: {error}");
        }
        assert_eq!(root.open_beneath("none", &reading()).await.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(root.open_beneath("a\0b", &reading()).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        // Without that option.
        assert_eq!(root.open_file("up", &reading()).await?.read_at(0, 100).await?, b"secret");
        assert!(root.open_file("up", reading().follow_link(false)).await.is_err());
        Ok(())
    });
}

#[test]
fn files_are_made_in_it() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        let root = Dir::from_fd(std::fs::File::open(dir.path())?);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        root.open_beneath("new", &options).await?.write_all_at(0, "new").await?;
        assert_eq!(std::fs::read_to_string(dir.path().join("new"))?, "new");
        assert_eq!(root.open_beneath("new", &options).await.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(root.open_file("new", &options).await.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let unknown = OpenOptions::from(std::fs::OpenOptions::new());
        assert_eq!(root.open_file("new", &unknown).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(Dir::open(dir.path().join("new")).await.unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(Dir::open(dir.path().join("none")).await.unwrap_err().kind(), io::ErrorKind::NotFound);
        Ok(())
    });
}

/// Neither way of opening waits for a process at the other end, and only looking has no effect.
#[test]
fn a_fifo_can_be_looked_at_and_opened_at_once() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        rustix::fs::mknodat(CWD, dir.path().join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        let root = Dir::open(dir.path()).await?;
        let look = root.open_beneath("fifo", reading().path_only(true)).await?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&look)?.st_mode);
        assert!(kind.is_fifo());
        let writing = || {
            rustix::fs::open(
                dir.path().join("fifo"),
                rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK,
                Mode::empty(),
            )
        };
        assert!(writing().is_err(), "nobody reads it");
        assert!(look.read_at(0, 1).await.is_err());
        let error = root.open_beneath("fifo", reading().regular_only(true)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(reading().regular_only(true).open(dir.path().join("fifo")).await.is_err());
        let error = root.open_beneath(".", reading().regular_only(true)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        let mut making = OpenOptions::new();
        making.write(true).create(true).regular_only(true);
        for _ in 0..2 {
            root.open_beneath("file", &making).await?.write_all_at(0, "made").await?;
        }
        assert_eq!(root.open_beneath("file", reading().regular_only(true)).await?.read_at(0, 9).await?, b"made");
        let opened = root.open_beneath("fifo", reading().nonblocking(true)).await?;
        assert!(writing().is_ok(), "somebody does");
        drop(opened);
        Ok(())
    });
}

#[test]
fn a_job_below_a_directory_follows_no_link_and_never_leaves_it() {
    let temp = tempfile::tempdir().expect("a directory");
    let path = temp.path();
    std::fs::create_dir_all(path.join("in/sub")).expect("directories");
    std::fs::write(path.join("secret"), "outside").expect("a file");
    std::fs::write(path.join("in/sub/page"), "inside").expect("a file");
    std::os::unix::fs::symlink("sub", path.join("in/link")).expect("a link");
    std::os::unix::fs::symlink("/etc", path.join("in/away")).expect("a link");
    let root = path.join("in");
    let runtime = dapple_io::runtime_builder().workers(1).build().expect("a runtime");
    let errors = runtime.block_on(async move {
        let dir = Dir::open(&root).await.expect("a directory");
        let job = |beneath: &dapple_io::fs::Beneath| {
            let page = beneath.open("sub/page", libc::O_RDONLY, 0)?;
            assert_eq!(std::io::read_to_string(page)?, "inside");
            let (parent, name) = beneath.parent(std::path::Path::new("sub/page"))?;
            assert!(parent.metadata()?.is_dir() && name == "page");
            assert!(beneath.parent(std::path::Path::new("page"))?.0.metadata()?.is_dir());
            let paths = ["../secret", "sub/../../secret", "/etc/passwd", "link/page", "away/passwd", "link"];
            let opened = paths.map(|path| beneath.open(path, libc::O_RDONLY, 0).expect_err(path).raw_os_error());
            let parents = ["../x", "/x", "link/x"]
                .map(|path| beneath.parent(std::path::Path::new(path)).expect_err(path).raw_os_error());
            for path in ["", ".", "..", "sub/", "sub/.."] {
                assert_eq!(
                    beneath.parent(std::path::Path::new(path)).expect_err(path).kind(),
                    io::ErrorKind::InvalidInput
                );
            }
            Ok((opened, parents))
        };
        dir.run_beneath(job).await.expect("the job")
    });
    let (out, link) = (Some(libc::EXDEV), Some(libc::ELOOP));
    assert_eq!(errors, ([out, out, out, link, link, link], [out, out, link]));
}
