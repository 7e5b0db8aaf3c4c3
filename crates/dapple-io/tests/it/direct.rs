//! Reads and writes that bypass the cache, with memory that is returned.

use std::io;
use std::path::Path;

use dapple_io::fs::{self, AlignedBuf, BufferPool, File, OpenOptions};

use crate::both_ways;

/// `None` if the file system has no `O_DIRECT`.
async fn open_direct(path: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().read(true).write(true).create(true).direct(true).open(path).await {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

#[test]
fn a_round_trip_with_buffers_of_all_kinds() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("file");
        let Some(file) = open_direct(&path).await? else { return Ok(()) };
        let pool = BufferPool::new(2, 8192)?;
        for (i, mut buf) in [AlignedBuf::new(8192), pool.take().unwrap()].into_iter().enumerate() {
            let offset = i as u64 * 8192;
            buf.fill(i as u8 + 1);
            let (count, mut buf) = file.write_buf_at(offset, buf).await;
            assert_eq!(count?, 8192);
            buf.fill(0);
            let (count, buf) = file.read_buf_at(offset, buf).await;
            assert_eq!(count?, 8192);
            assert!(buf.iter().all(|byte| *byte == i as u8 + 1));
        }
        assert_eq!(pool.available(), 2);
        file.sync_all().await?;
        // Plain vectors are copied.
        file.write_all_at(4096, vec![9; 4096]).await?;
        assert_eq!(file.read_at(4096, 4096).await?, vec![9; 4096]);
        assert_eq!(file.read_exact_at(12288, 4096).await?, vec![2; 4096]);
        assert_eq!(file.read_exact_at(12288, 8192).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        // The end, in the middle of a buffer and after it.
        fs::write(&path, vec![5; 5000]).await?;
        let (count, buf) = file.read_buf_at(4096, AlignedBuf::new(4096)).await;
        assert_eq!(&buf[..count?], vec![5; 904]);
        let (count, _) = file.read_buf_at(8192, AlignedBuf::new(4096)).await;
        assert_eq!(count?, 0);
        Ok(())
    });
}

#[test]
fn bad_input_is_named_and_the_buffer_comes_back() {
    both_ways(1, async || {
        let dir = tempfile::tempdir()?;
        let Some(file) = open_direct(&dir.path().join("file")).await? else { return Ok(()) };
        for (offset, len, named) in
            [(100, 4096, "the offset, 100,"), (0, 100, "the length of the buffer, 100,"), (0, 0, "empty")]
        {
            let mut buf = AlignedBuf::new(4096);
            buf.set_len(len);
            let (result, buf) = file.read_buf_at(offset, buf).await;
            let error = result.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(named), "{error}");
            let (result, buf) = file.write_buf_at(offset, buf).await;
            assert!(result.unwrap_err().to_string().contains(named));
            assert_eq!((buf.len(), buf.capacity()), (len, 4096));
        }
        let error = file.read_at(1, 4096).await.unwrap_err();
        assert!(error.to_string().contains("the offset, 1,"), "{error}");
        // An error of the kernel.
        let read_only = File::open(dir.path().join("file")).await?;
        let (result, buf) = read_only.write_buf_at(0, AlignedBuf::new(4096)).await;
        assert_eq!(result.unwrap_err().raw_os_error(), Some(9));
        assert_eq!(buf.len(), 4096);
        Ok(())
    });
}

#[test]
fn buffers_outlive_their_pool_and_more_pools_than_the_kernel_takes() {
    both_ways(2, async || {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("file");
        fs::write(&path, vec![3; 4096]).await?;
        let file = File::open(&path).await?;
        let mut bufs = Vec::new();
        for _ in 0..100 {
            let buf = BufferPool::new(1, 4096)?.take().unwrap();
            let (count, buf) = file.read_buf_at(0, buf).await;
            assert_eq!(count?, 4096);
            bufs.push(buf);
        }
        assert!(bufs.iter().all(|buf| buf[..] == [3; 4096]));
        drop(bufs);
        let (count, buf) = file.read_buf_at(0, BufferPool::new(1, 4096)?.take().unwrap()).await;
        assert_eq!((count?, buf[4095]), (4096, 3));
        Ok(())
    });
}
