//! The files of music in a folder, with their tags.

use std::collections::HashMap;
use std::fs::{self, DirEntry, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{self, Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dapple::blocking::spawn_blocking;
use dapple::sync::Mutex;
use dapple::time::Instant;

use crate::rules::Rules;

/// A file of music.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Track {
    /// The path below the folder.
    pub(crate) path: String,
    pub(crate) len: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified_ns: u64,
    /// The time of the last change of the file or its permissions.
    changed: (i64, i64),
    /// The path and the tags, in lower case, for the words of rules.
    pub(crate) words: String,
}

/// All tracks of a moment, which streams share.
pub(crate) struct Tracks {
    /// By path.
    pub(crate) all: Vec<Track>,
    /// The streams that were asked for, by their rules.
    chosen: sync::Mutex<HashMap<String, Arc<Chosen>>>,
}

/// The tracks of a stream, in its order.
pub(crate) struct Chosen {
    /// The places in the list of all tracks.
    pub(crate) places: Vec<u32>,
    /// The bytes of all of them.
    pub(crate) len: u64,
    pub(crate) etag: String,
}

impl Tracks {
    fn new(all: Vec<Track>) -> Tracks {
        Tracks { all, chosen: sync::Mutex::default() }
    }

    /// The tracks that rules choose, which are kept for the next request.
    ///
    /// # Errors
    /// A sentence for the client.
    pub(crate) async fn chosen(self: Arc<Tracks>, rules: &str) -> Result<Arc<Chosen>, String> {
        let kept = || self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chosen) = kept().get(rules).cloned() {
            return Ok(chosen);
        }
        let (parsed, tracks) = (Rules::parse(rules)?, self.clone());
        let choose = spawn_blocking(move || tracks.at(parsed.chosen(&tracks.all)));
        let chosen = Arc::new(choose.await.map_err(|error| error.to_string())?);
        let mut kept = kept();
        if kept.len() >= CHOSEN_MAX {
            kept.clear();
        }
        Ok(kept.entry(rules.to_owned()).or_insert(chosen).clone())
    }

    /// The tracks at these places.
    pub(crate) fn at(&self, places: Vec<u32>) -> Chosen {
        let (mut len, mut hash) = (0, DefaultHasher::new());
        for track in places.iter().map(|place| &self.all[*place as usize]) {
            len += track.len;
            (&track.path, track.len, track.modified_ns).hash(&mut hash);
        }
        Chosen { etag: format!("\"{:016x}-{len:x}\"", hash.finish()), places, len }
    }
}

/// The tracks of a folder, which is read again when it is asked for after some time. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Library {
    folder: Arc<Path>,
    /// The request that has this lock reads the folder, and the others wait for it.
    last: Arc<Mutex<Last>>,
}

/// The tracks of the last time.
#[derive(Default)]
struct Last {
    tracks: Option<(Instant, Arc<Tracks>)>,
    /// The paths and the reasons that were said, each once for as long as it holds.
    said: Vec<String>,
}

impl Library {
    pub(crate) fn new(folder: &Path) -> Library {
        Library { folder: folder.into(), last: Arc::default() }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// All tracks, by path.
    pub(crate) async fn tracks(&self) -> io::Result<Arc<Tracks>> {
        if let Some(tracks) = self.last.lock().await.recent() {
            return Ok(tracks);
        }
        // A client that leaves does not end what others wait for.
        dapple::spawn(self.clone().read()).await.map_err(io::Error::other)?
    }

    async fn read(self) -> io::Result<Arc<Tracks>> {
        let mut last = self.last.lock().await;
        if let Some(tracks) = last.recent() {
            return Ok(tracks);
        }
        let before = last.tracks.take().map(|(_, tracks)| tracks);
        let (folder, known) = (self.folder, before.clone());
        let read = spawn_blocking(move || Scan::of(&folder, known)).await;
        let (tracks, problems) = match (read.unwrap_or_else(|error| Err(io::Error::other(error))), before) {
            // Those that are being sent stay the same ones.
            (Ok(scan), Some(before)) if before.all == scan.tracks => (before, scan.problems),
            (Ok(scan), _) => (Arc::new(Tracks::new(scan.tracks)), scan.problems),
            (Err(error), Some(before)) => (before, vec![format!("the folder: {error}; the tracks of before stay")]),
            (Err(error), None) => return Err(error),
        };
        last.say(problems);
        last.tracks = Some((Instant::now(), tracks.clone()));
        Ok(tracks)
    }
}

impl Last {
    fn recent(&self) -> Option<Arc<Tracks>> {
        let (at, tracks) = self.tracks.as_ref()?;
        (at.elapsed() < READ_AGAIN_AFTER).then(|| tracks.clone())
    }

    fn say(&mut self, problems: Vec<String>) {
        for problem in problems.iter().filter(|problem| !self.said.contains(problem)) {
            eprintln!("jukebox: cannot read {problem}");
        }
        self.said = problems;
    }
}

/// One reading of the folder.
struct Scan {
    tracks: Vec<Track>,
    /// The first entries that were left out since they cannot be read, and why.
    problems: Vec<String>,
    /// The tracks of the last time, by path.
    known: Option<Arc<Tracks>>,
}

impl Scan {
    fn of(folder: &Path, known: Option<Arc<Tracks>>) -> io::Result<Scan> {
        let mut scan = Scan { tracks: Vec::new(), problems: Vec::new(), known };
        for entry in fs::read_dir(folder)? {
            scan.add(&entry?, "", 0);
        }
        scan.tracks.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(scan)
    }

    /// Adds an entry of a folder, and what is below it. It follows no links, so that it ends and stays below.
    fn add(&mut self, entry: &DirEntry, prefix: &str, depth: usize) {
        // A name that is no text cannot be part of a URL here.
        let Ok(name) = entry.file_name().into_string() else { return };
        let path = format!("{prefix}{name}");
        if let Err(error) = self.try_add(entry, &path, depth)
            && self.problems.len() < PROBLEMS_MAX
        {
            self.problems.push(format!("{path}: {error}; it is left out"));
        }
    }

    fn try_add(&mut self, entry: &DirEntry, path: &str, depth: usize) -> io::Result<()> {
        let kind = entry.file_type()?;
        if kind.is_dir() && depth < DEPTH_MAX {
            for below in fs::read_dir(entry.path())? {
                self.add(&below?, &format!("{path}/"), depth + 1);
            }
        } else if kind.is_file() && path.to_lowercase().ends_with(".mp3") && self.tracks.len() < TRACKS_MAX {
            let about = entry.metadata()?;
            let (len, modified_ns) = (about.len(), modified_ns(&about.modified()?));
            let changed = (about.ctime(), about.ctime_nsec());
            let known = self.known.as_ref().map_or(&[][..], |known| &known.all);
            let found = known.binary_search_by(|known| known.path.as_str().cmp(path)).ok().map(|place| &known[place]);
            let known = found.filter(|it| (it.len, it.modified_ns, it.changed) == (len, modified_ns, changed));
            let track = match known {
                Some(known) => known.clone(),
                None => {
                    let words = format!("{path}\n{}", tags(&entry.path())?).to_lowercase();
                    Track { path: path.to_owned(), len, modified_ns, changed, words }
                }
            };
            self.tracks.push(track);
        }
        Ok(())
    }
}

pub(crate) fn modified_ns(modified: &SystemTime) -> u64 {
    modified.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// The texts of an ID3v1 tag, the last 128 bytes of a file: title, artist, album, year and comment.
fn tags(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut tag = [0; 128];
    // A shorter file has none.
    let is_whole = file.seek(SeekFrom::End(-128)).is_ok() && file.read_exact(&mut tag).is_ok();
    Ok(if is_whole && tag.starts_with(b"TAG") { texts(&tag[3..127]) } else { String::new() })
}

/// Texts in Latin-1 with zeros or spaces after each.
fn texts(tag: &[u8]) -> String {
    let fields = [&tag[..30], &tag[30..60], &tag[60..90], &tag[90..94], &tag[94..]];
    let text = |field: &[u8]| field.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
    fields.map(|field| -> String { text(field) }).map(|text| text.trim_end().to_owned()).join("\n")
}

const READ_AGAIN_AFTER: Duration = Duration::from_secs(5);
const TRACKS_MAX: usize = 100_000;
/// The most streams with kept tracks.
const CHOSEN_MAX: usize = 200;
/// The problems that are said of one reading.
const PROBLEMS_MAX: usize = 10;
const DEPTH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use super::*;

    impl Track {
        pub(crate) fn named(name: &str, modified_ns: u64) -> Track {
            let words = name.to_owned();
            Track { path: words.clone(), len: 1, modified_ns, changed: (0, 0), words }
        }
    }

    #[test]
    fn tags_are_texts_without_what_is_after_them() {
        let mut tag = vec![0; 124];
        tag[..5].copy_from_slice(b"S\xe9ga ");
        tag[30..33].copy_from_slice(b"Ann");
        tag[90..94].copy_from_slice(b"1999");
        assert_eq!(texts(&tag), "S\u{e9}ga\nAnn\n\n1999\n");
    }

    /// A library of a folder with one file, which has been read before.
    async fn library(folder: &Path) -> Library {
        fs::write(folder.join("a.mp3"), "a").unwrap();
        let library = Library::new(folder);
        assert_eq!(names(&library).await, ["a.mp3"]);
        library
    }

    async fn names(library: &Library) -> Vec<String> {
        library.tracks().await.unwrap().all.iter().map(|track| track.path.clone()).collect()
    }

    /// Lets the next request read the folder again.
    async fn expire(library: &Library) {
        let mut last = library.last.lock().await;
        let (at, _) = last.tracks.as_mut().unwrap();
        *at -= READ_AGAIN_AFTER;
    }

    #[dapple::test]
    async fn requests_at_the_same_time_read_the_folder_once() {
        let folder = tempfile::tempdir().unwrap();
        let library = library(folder.path()).await;
        let before = library.tracks().await.unwrap();
        expire(&library).await;
        assert!(Arc::ptr_eq(&before, &library.tracks().await.unwrap()), "the same tracks stay");
        fs::write(folder.path().join("b.mp3"), "b").unwrap();
        expire(&library).await;
        // The first one leaves, as its client does, and what it began goes on.
        let mut left = Box::pin(library.tracks());
        let _ = left.as_mut().now_or_never();
        drop(left);
        let all = join_all((0..8).map(|_| library.tracks())).await;
        let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
        assert!(all.iter().all(|tracks| Arc::ptr_eq(tracks, &all[0])));
        assert_eq!(names(&library).await, ["a.mp3", "b.mp3"]);
    }

    #[dapple::test]
    async fn the_last_tracks_stay_while_the_folder_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let (music, away) = (folder.path().join("music"), folder.path().join("away"));
        fs::create_dir(&music).unwrap();
        let library = library(&music).await;
        fs::rename(&music, &away).unwrap();
        for _ in 0..2 {
            expire(&library).await;
            assert_eq!(names(&library).await, ["a.mp3"]);
        }
        assert_eq!(library.last.lock().await.said.len(), 1);
        fs::rename(&away, &music).unwrap();
        fs::write(music.join("b.mp3"), "b").unwrap();
        expire(&library).await;
        assert_eq!(names(&library).await, ["a.mp3", "b.mp3"]);
        assert_eq!(library.last.lock().await.said.len(), 0);
    }

    #[dapple::test]
    async fn entries_that_cannot_be_read_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        // Not even root opens a path that is too long.
        let script = "for i in $(seq 16); do mkdir $0 && cd $0 || exit 1; done; echo a > $0.mp3";
        let made = Command::new("sh").args(["-c", script, &"d".repeat(250)]).current_dir(folder.path()).status();
        assert!(made.unwrap().success());
        let library = library(folder.path()).await;
        let said = library.last.lock().await.said.clone();
        assert!(said.len() == 1 && said[0].ends_with("it is left out"), "{said:?}");
    }

    #[dapple::test]
    async fn streams_of_the_same_rules_share_their_tracks() {
        let folder = tempfile::tempdir().unwrap();
        let library = library(folder.path()).await;
        let chosen = async |rules: &str| library.tracks().await.unwrap().chosen(rules).await.unwrap();
        let first = chosen("{}").await;
        assert_eq!((first.places.as_slice(), first.len), ([0].as_slice(), 1));
        expire(&library).await;
        assert!(Arc::ptr_eq(&first, &chosen("{}").await), "the folder is the same");
        // A file of the same length, in the same second.
        let modified_ns = library.tracks().await.unwrap().all[0].modified_ns + 1;
        let file = File::options().write(true).open(folder.path().join("a.mp3")).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_nanos(modified_ns)).unwrap();
        expire(&library).await;
        assert_ne!(first.etag, chosen("{}").await.etag);
        assert!(library.tracks().await.unwrap().chosen("{").await.is_err());
    }

    #[test]
    fn a_known_track_is_not_opened_again_unless_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.mp3");
        fs::write(&file, "a").unwrap();
        let mut known = Scan::of(folder.path(), None).unwrap().tracks;
        known[0].words = "kept".to_owned();
        let words =
            || Scan::of(folder.path(), Some(Arc::new(Tracks::new(known.clone())))).unwrap().tracks[0].words.clone();
        assert_eq!(words(), "kept");
        fs::write(&file, "ab").unwrap();
        assert_eq!(words(), "a.mp3\n");
    }
}
