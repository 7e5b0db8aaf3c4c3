//! Loading a file of many lines.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use bytes::Bytes;
use futures_util::stream;

use super::args::TableTarget;
use super::commands::{made_if_missing, print};
use super::error::CommandError;
use super::open;
use super::progress::Progress;
use super::text::unescape;

/// The most lines, and about the most bytes, that are sorted and loaded at a time.
const CHUNK_LEN: u64 = 65_536;
const CHUNK_BYTES: usize = 16 << 20;

/// A line may hold the longest key and value, each byte as an escape.
const LINE_LEN_MAX: u64 = 80 << 20;

/// Lines of the input, and the first one that is wrong.
#[derive(Default)]
struct Chunk {
    /// The last value of each key, in the order of the keys.
    entries: BTreeMap<Bytes, Bytes>,
    lines: u64,
    problem: Option<String>,
}

pub(super) async fn load(target: &TableTarget, file: &Path) -> Result<(), CommandError> {
    let path = file.display().to_string();
    let failed = |error| CommandError::Input { path: path.clone(), error };
    // Before a store is made for it.
    let mut input: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(file).map_err(failed)?))
    };
    let mut chunk = read(&mut input).map_err(failed)?;
    let store = open(&target.store, true).await?;
    let table = made_if_missing(&store, &target.table).await?;
    let (mut loaded, mut progress) = (0, Progress::new("lines loaded"));
    loop {
        let lines = chunk.lines;
        let is_last = lines == 0 || chunk.problem.is_some();
        let mut keys = 0;
        let tell = |count| {
            keys = count;
            progress.tell(loaded + count);
        };
        let done = table.bulk_load(stream::iter(chunk.entries), tell).await;
        done.map_err(|error| CommandError::Load { path: path.clone(), loaded, keys, error })?;
        loaded += lines;
        if let Some(problem) = chunk.problem {
            return Err(CommandError::Line { path, line: loaded + 1, problem, loaded });
        }
        if is_last {
            break;
        }
        chunk = read(&mut input).map_err(|error| CommandError::Rest { path: path.clone(), loaded, error })?;
    }
    progress.end();
    let json = serde_json::json!({ "loaded": loaded });
    print(&target.store, &format!("{loaded} lines loaded"), &json)
}

/// Reads the next chunk; it has no lines at the end.
fn read(input: &mut dyn BufRead) -> io::Result<Chunk> {
    let (mut chunk, mut bytes, mut line) = (Chunk::default(), 0, Vec::new());
    while chunk.lines < CHUNK_LEN && bytes < CHUNK_BYTES {
        line.clear();
        input.take(LINE_LEN_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            break;
        }
        bytes += line.len();
        match parse(&line) {
            Ok((key, value)) => chunk.entries.insert(key, value),
            Err(problem) => {
                chunk.problem = Some(problem);
                break;
            }
        };
        chunk.lines += 1;
    }
    Ok(chunk)
}

fn parse(line: &[u8]) -> Result<(Bytes, Bytes), String> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let tab = line.iter().position(|byte| *byte == b'\t').ok_or("there is no tab between key and value")?;
    Ok((unescape(&line[..tab])?.into(), unescape(&line[tab + 1..])?.into()))
}
