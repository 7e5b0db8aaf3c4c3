//! Files, by each path that a call can take: a worker's ring, and the pool.

use std::io;

use dapple_io::fs::{self, File, OpenOptions};

use crate::both_ways;

#[test]
fn a_round_trip() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        let sub = dir.path().join("a/b");
        fs::create_dir_all(&sub).await?;
        let path = sub.join("file");
        fs::write(&path, "0123456789").await?;
        assert_eq!(fs::read_to_string(&path).await?, "0123456789");
        assert_eq!(fs::metadata(&path).await?.len(), 10);
        let entries = fs::read_dir(&sub).await?;
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].file_name(), "file");
        let dotted = sub.join("../b/file");
        assert_eq!(fs::canonicalize(&dotted).await?, fs::canonicalize(&path).await?);
        let renamed = dir.path().join("renamed");
        fs::rename(&path, &renamed).await?;
        assert_eq!(fs::metadata(&path).await.unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::remove_file(&renamed).await
    });
}

#[test]
fn reads_at_offsets() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("file");
        let data: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        fs::write(&path, data.clone()).await?;
        let file = File::open(&path).await?;
        let mut read = Vec::new();
        loop {
            let part = file.read_at(read.len() as u64, 100_000).await?;
            if part.is_empty() {
                break;
            }
            read.extend(part);
        }
        assert!(read == data);
        assert_eq!(file.read_exact_at(250_000, 50_000).await?, &data[250_000..]);
        let error = file.read_exact_at(250_000, 50_001).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        Ok(())
    });
}

#[test]
fn open_options_are_kept() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("file");
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let file = options.open(&path).await?;
        file.write_all_at(3, "abc").await?;
        file.sync_all().await?;
        let error = options.open(&path).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).await?, b"\0\0\0abc");
        file.set_len(4).await?;
        assert_eq!(file.metadata().await?.len(), 4);
        Ok(())
    });
}

#[test]
fn metadata_is_that_of_the_standard_library() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        let (path, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&path, "abc").await?;
        std::os::unix::fs::symlink(&path, &link)?;
        let expected = std::fs::metadata(&path)?;
        for seen in [fs::metadata(&link).await?, File::open(&link).await?.metadata().await?] {
            assert_eq!((seen.len(), seen.modified()?), (3, expected.modified()?));
            assert_eq!(seen.permissions(), expected.permissions());
        }
        assert!(fs::symlink_metadata(&link).await?.is_symlink());
        Ok(())
    });
}

#[test]
fn whole_files_of_all_lengths() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("file");
        for len in [0, 1, 65_535, 65_536, 65_537, 3_000_000] {
            let data: Vec<u8> = (0..len as u32).map(|i| (i % 251) as u8).collect();
            fs::write(&path, data.clone()).await?;
            assert!(fs::read(&path).await? == data, "{len} bytes");
        }
        // Its size says 0.
        assert_eq!(fs::read("/proc/self/cmdline").await?, std::fs::read("/proc/self/cmdline")?);
        fs::write(&path, [b'a', 0xff]).await?;
        assert_eq!(fs::read_to_string(&path).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        Ok(())
    });
}

#[test]
fn holes_and_ends() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        let file = File::create(dir.path().join("file")).await?;
        file.write_all_at(1 << 20, "end").await?;
        let hole = file.read_exact_at(5000, 200_000).await?;
        assert!(hole.iter().all(|byte| *byte == 0));
        assert_eq!(file.read_at((1 << 20) + 1, 100).await?, b"nd");
        assert_eq!(file.read_at((1 << 20) + 3, 100).await?, b"");
        assert_eq!(file.read_at(1 << 40, 100_000).await?, b"");
        assert_eq!(file.read_at(0, 0).await?, b"");
        Ok(())
    });
}

#[test]
fn errors_are_those_of_the_standard_library() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        let (path, sub) = (dir.path().join("file"), dir.path().join("sub"));
        std::fs::write(&path, "abc")?;
        std::fs::create_dir(&sub)?;
        let same = |ours: io::Error, theirs: io::Error| {
            assert_eq!((ours.kind(), ours.raw_os_error()), (theirs.kind(), theirs.raw_os_error()));
        };
        same(fs::read(&sub).await.unwrap_err(), std::fs::read(&sub).unwrap_err());
        same(fs::write(&sub, "x").await.unwrap_err(), std::fs::write(&sub, "x").unwrap_err());
        same(File::create(&sub).await.unwrap_err(), std::fs::File::create(&sub).unwrap_err());
        let below = path.join("below");
        same(File::open(&below).await.unwrap_err(), std::fs::File::open(&below).unwrap_err());
        same(fs::metadata(&below).await.unwrap_err(), std::fs::metadata(&below).unwrap_err());
        same(fs::metadata("a\0b").await.unwrap_err(), std::fs::metadata("a\0b").unwrap_err());
        let mut none = OpenOptions::new();
        same(none.open(&path).await.unwrap_err(), std::fs::OpenOptions::new().open(&path).unwrap_err());
        none.read(true).create(true);
        let mut theirs = std::fs::OpenOptions::new();
        theirs.read(true).create(true);
        same(none.open(&path).await.unwrap_err(), theirs.open(&path).unwrap_err());
        let read_only = File::open(&path).await?;
        use std::os::unix::fs::FileExt;
        same(read_only.write_all_at(0, "x").await.unwrap_err(), read_only.as_std().write_all_at(b"x", 0).unwrap_err());
        Ok(())
    });
}

#[test]
fn pipes_have_no_offsets_and_are_read_whole() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into())?;
        // Opening waits for the other side.
        let writer = path.clone();
        let writer = std::thread::spawn(move || std::fs::write(writer, "through the pipe"));
        assert_eq!(fs::read(&path).await?, b"through the pipe");
        writer.join().unwrap()?;
        let mut options = OpenOptions::new();
        let both = options.read(true).write(true).open(&path).await?;
        assert_eq!(both.read_at(0, 1).await.unwrap_err().kind(), io::ErrorKind::NotSeekable);
        assert_eq!(both.read_exact_at(0, 100_000).await.unwrap_err().kind(), io::ErrorKind::NotSeekable);
        assert_eq!(both.write_all_at(0, "x").await.unwrap_err().kind(), io::ErrorKind::NotSeekable);
        Ok(())
    });
}

#[test]
fn appended_data_goes_to_the_end() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("file");
        fs::write(&path, "0123").await?;
        let file = OpenOptions::new().append(true).open(&path).await?;
        file.write_all_at(0, "45").await?;
        file.sync_data().await?;
        assert_eq!(fs::read(&path).await?, b"012345");
        Ok(())
    });
}

#[test]
fn a_full_device_is_an_error() {
    both_ways(1, async || {
        let full = OpenOptions::new().write(true).open("/dev/full").await?;
        let error = full.write_all_at(0, vec![1; 100_000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        Ok(())
    });
}

/// If the file system cannot tell which blocks are in the kernel's cache, nothing is read;
/// otherwise the right bytes are.
#[test]
fn cached_bytes_are_read_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "0123456789").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    for (offset, len, expected) in [(3, 4, "3456"), (8, 100, "89"), (10, 5, ""), (0, 0, ""), (u64::MAX, 1, "")] {
        let read = fs::read_cached_at(&file, offset, len).unwrap();
        assert!(read.as_ref().is_none_or(|read| read == expected.as_bytes()), "{len} bytes at {offset}: {read:?}");
        assert!(read.is_none_or(|read| read.capacity() <= len.max(8)), "more room than was asked for");
    }
    let writer = std::fs::File::options().write(true).open(&path).unwrap();
    assert!(fs::read_cached_at(&writer, 0, 4).is_err(), "it was opened for writing only");
    let (reader, _writer) = std::io::pipe().unwrap();
    assert_eq!(fs::read_cached_at(&reader, 0, 4).unwrap_err().kind(), io::ErrorKind::NotSeekable);
}
