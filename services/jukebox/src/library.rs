//! The files of music in a folder, with their tags.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use dapple::Colored;
use dapple::blocking::spawn_blocking;
use dapple::time::Instant;

/// A file of music.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Track {
    /// The path below the folder.
    pub(crate) path: String,
    pub(crate) len: u64,
    pub(crate) modified_s: u64,
    /// The path and the tags, in lower case, for the words of rules.
    pub(crate) words: String,
}

/// The tracks of a folder, which is read again when it is asked for after some time. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Library {
    folder: Arc<Path>,
    read: Colored<Option<(Instant, Arc<Vec<Track>>)>>,
}

impl Library {
    pub(crate) fn new(folder: &Path) -> Library {
        Library { folder: folder.into(), read: Colored::new(None) }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// All tracks, by path.
    pub(crate) async fn tracks(&self) -> io::Result<Arc<Vec<Track>>> {
        let recent = |read: &mut Option<(Instant, Arc<Vec<Track>>)>| {
            let (at, tracks) = read.as_ref()?;
            (at.elapsed() < READ_AGAIN_AFTER).then(|| tracks.clone())
        };
        if let Some(tracks) = self.read.with(recent).await {
            return Ok(tracks);
        }
        let folder = self.folder.clone();
        let read = spawn_blocking(move || {
            let mut tracks = Vec::new();
            find(&folder, "", 0, &mut tracks)?;
            tracks.sort_by(|a, b| a.path.cmp(&b.path));
            io::Result::Ok(tracks)
        });
        let tracks = Arc::new(read.await.map_err(io::Error::other)??);
        let kept = (Instant::now(), tracks.clone());
        self.read.with(move |read| *read = Some(kept)).await;
        Ok(tracks)
    }
}

/// Adds the tracks below a folder. It follows no links, so that it ends and stays below.
fn find(folder: &Path, prefix: &str, depth: usize, tracks: &mut Vec<Track>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // A name that is no text cannot be part of a URL here.
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (path, kind) = (format!("{prefix}{name}"), entry.file_type()?);
        if kind.is_dir() && depth < DEPTH_MAX {
            find(&entry.path(), &format!("{path}/"), depth + 1, tracks)?;
        } else if kind.is_file() && name.to_lowercase().ends_with(".mp3") && tracks.len() < TRACKS_MAX {
            let about = entry.metadata()?;
            let modified_s = about.modified()?.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
            let words = format!("{path}\n{}", tags(&entry.path()).unwrap_or_default()).to_lowercase();
            tracks.push(Track { path, len: about.len(), modified_s, words });
        }
    }
    Ok(())
}

/// The texts of an ID3v1 tag, the last 128 bytes of a file: title, artist, album, year and comment.
fn tags(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut tag = [0; 128];
    file.seek(SeekFrom::End(-128))?;
    file.read_exact(&mut tag)?;
    Ok(if tag.starts_with(b"TAG") { texts(&tag[3..127]) } else { String::new() })
}

/// Texts in Latin-1 with zeros or spaces after each.
fn texts(tag: &[u8]) -> String {
    let fields = [&tag[..30], &tag[30..60], &tag[60..90], &tag[90..94], &tag[94..]];
    let text = |field: &[u8]| field.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
    fields.map(|field| -> String { text(field) }).map(|text| text.trim_end().to_owned()).join("\n")
}

const READ_AGAIN_AFTER: Duration = Duration::from_secs(5);
const TRACKS_MAX: usize = 100_000;
const DEPTH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_texts_without_what_is_after_them() {
        let mut tag = vec![0; 124];
        tag[..5].copy_from_slice(b"S\xe9ga ");
        tag[30..33].copy_from_slice(b"Ann");
        tag[90..94].copy_from_slice(b"1999");
        assert_eq!(texts(&tag), "S\u{e9}ga\nAnn\n\n1999\n");
    }
}
