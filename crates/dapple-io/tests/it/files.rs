//! Files through the pool.

use std::io;

use dapple_io::fs::{self, File, OpenOptions};

use crate::run;

#[test]
fn a_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    run(1, async {
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
    })
    .unwrap();
}

#[test]
fn reads_at_offsets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let data: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
    run(1, async {
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
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn open_options_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    run(1, async {
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
        io::Result::Ok(())
    })
    .unwrap();
}
