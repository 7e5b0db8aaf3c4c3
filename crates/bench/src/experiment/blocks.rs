//! A file of numbered blocks that can be read in any order.

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{OFlags, statfs, statvfs};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a block.
pub(crate) const BLOCK_LEN: usize = 4_096;

/// A file of numbered blocks. It has no name, so that it never outlives this process.
pub(crate) struct BlockFile {
    file: std::fs::File,
}

impl BlockFile {
    /// Writes the file. The error says how to choose another folder or file system if this one is
    /// unsuitable.
    pub(crate) fn write(folder: &Path, megabytes: u64) -> Result<BlockFile> {
        let problem = || format!("cannot write a file to {}: pass another --folder", folder.display());
        ensure_room(folder, megabytes << 20)?;
        let mut file = tempfile::tempfile_in(folder).with_context(problem)?;
        eprintln!("writing a file of {megabytes} MB to {}", folder.display());
        let mut piece = vec![0; 1 << 20];
        for megabyte in 0..megabytes {
            for (index, block) in piece.chunks_exact_mut(BLOCK_LEN).enumerate() {
                fill(megabyte * BLOCKS_PER_MEGABYTE + index as u64, block);
            }
            file.write_all(&piece).with_context(problem)?;
        }
        file.sync_all().with_context(problem)?;
        let file = BlockFile { file };
        open_direct(&file.path())
            .with_context(|| format!("{} will not do: pass a --folder on another file system", folder.display()))?;
        Ok(file)
    }

    /// The path by which other processes find it while this one lives.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}

const BLOCKS_PER_MEGABYTE: u64 = (1 << 20) / BLOCK_LEN as u64;

fn ensure_room(folder: &Path, needed: u64) -> Result<()> {
    let problem = || format!("cannot look at {}: pass another --folder", folder.display());
    let space = statvfs(folder).with_context(problem)?;
    let free = space.f_bavail * space.f_frsize;
    let (needed_mb, free_mb) = (needed >> 20, free >> 20);
    ensure!(
        free > needed + needed / 64,
        "{} has {free_mb} MB free, and the file takes {needed_mb}: pass another --folder, or less --file-mb",
        folder.display()
    );
    if statfs(folder).with_context(problem)?.f_type == TMPFS {
        bail!("{} is in memory (tmpfs), so there is no disk to measure: pass another --folder", folder.display());
    }
    Ok(())
}

/// The type that `statfs` reports for a tmpfs.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// Opens the file for reads that bypass the kernel's cache.
pub(crate) fn open_direct(path: &Path) -> Result<std::fs::File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path);
    file.with_context(|| {
        format!("cannot open {} with O_DIRECT: pass a --folder on another file system", path.display())
    })
}

/// The number of blocks in the file.
pub(crate) fn blocks_of(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path).context("the file to be read is gone")?.len() / BLOCK_LEN as u64)
}

fn fill(number: u64, block: &mut [u8]) {
    for (index, word) in block.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&word_of(number, index).to_le_bytes());
    }
}

/// Words at both ends of the block are its number; those between differ from each other.
fn word_of(number: u64, index: usize) -> u64 {
    match index {
        0 | LAST_WORD => number,
        _ => (number << 16 | index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15),
    }
}

const LAST_WORD: usize = BLOCK_LEN / 8 - 1;

/// Checks that this is the block of that number: at both ends, or all of it.
pub(crate) fn check_block(number: u64, block: &[u8], whole: bool) -> Result<()> {
    ensure!(block.len() == BLOCK_LEN, "block {number} came with {} bytes", block.len());
    let is_right = |index: usize| block[index * 8..][..8] == word_of(number, index).to_le_bytes();
    let right = if whole { (0..=LAST_WORD).all(is_right) } else { is_right(0) && is_right(LAST_WORD) };
    ensure!(right, "block {number} holds something else");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn blocks_are_what_their_numbers_say() {
        let folder = std::env::current_dir().expect("there is one");
        let file = BlockFile::write(&folder, 1).expect("the folder of the build is on a disk");
        assert_eq!(blocks_of(&file.path()).ok(), Some(BLOCKS_PER_MEGABYTE));
        let mut block = vec![0; BLOCK_LEN];
        file.file.read_exact_at(&mut block, 200 * BLOCK_LEN as u64).expect("it is read");
        assert!(check_block(200, &block, true).is_ok());
        assert!(check_block(201, &block, false).is_err());
        assert!(check_block(200, &block[1..], false).is_err());
        block[2_000] ^= 1;
        assert!(check_block(200, &block, false).is_ok() && check_block(200, &block, true).is_err());
    }

    #[test]
    fn what_stands_in_the_way_is_named() {
        let error = |folder: &str, megabytes| {
            BlockFile::write(Path::new(folder), megabytes).err().map(|error| format!("{error:#}")).unwrap_or_default()
        };
        assert!(error(".", 1 << 40).contains("less --file-mb"));
        assert!(error("/no/such/folder", 1).contains("pass another --folder"));
        assert!(error("/proc", 1).contains("pass another --folder"));
    }
}
