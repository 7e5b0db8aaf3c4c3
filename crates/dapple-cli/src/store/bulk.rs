//! Loading a file of many lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use bytes::Bytes;
use dapple::Color;
use dapple::store::Error;

use super::TextTable;
use super::error::CommandError;
use super::progress::Progress;
use super::text::unescape;

/// The most puts in progress at a time. They share commits, so this bounds the syncs of a file,
/// too.
const BATCH_LEN: usize = 500;

/// A line may hold the longest key and value, each byte as an escape.
const LINE_LEN_MAX: u64 = 80 << 20;

pub(super) async fn load(table: &TextTable, file: &Path, json: bool) -> Result<(), CommandError> {
    let path = file.display().to_string();
    let failed = |error| CommandError::Input { path: path.clone(), error };
    let mut input: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(file).map_err(failed)?))
    };
    let mut progress = Progress::new("keys loaded");
    let mut loaded = 0;
    loop {
        let mut batch = Vec::new();
        let mut problem = None;
        while batch.len() < BATCH_LEN {
            let mut line = Vec::new();
            input.by_ref().take(LINE_LEN_MAX).read_until(b'\n', &mut line).map_err(failed)?;
            if line.is_empty() {
                break;
            }
            match parse(&line) {
                Ok(entry) => batch.push(entry),
                Err(text) => {
                    problem = Some(text);
                    break;
                }
            }
        }
        let len = batch.len();
        put_all(table, batch).await?;
        loaded += len as u64;
        progress.tell(loaded);
        if let Some(problem) = problem {
            return Err(CommandError::Line { path, line: loaded + 1, problem, loaded });
        }
        if len < BATCH_LEN {
            break;
        }
    }
    progress.end();
    let text = if json { format!("{{\"loaded\":{loaded}}}") } else { format!("{loaded} keys loaded") };
    io::Write::write_fmt(&mut io::stdout(), format_args!("{text}\n")).map_err(CommandError::Output)
}

fn parse(line: &[u8]) -> Result<(Bytes, Bytes), String> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let tab = line.iter().position(|byte| *byte == b'\t').ok_or("there is no tab between key and value")?;
    Ok((unescape(&line[..tab])?.into(), unescape(&line[tab + 1..])?.into()))
}

/// Puts entries at the same time, but those of one key in the order of the lines.
pub(super) async fn put_all(table: &TextTable, batch: Vec<(Bytes, Bytes)>) -> Result<(), Error> {
    let last_of_each: std::collections::HashMap<Bytes, Bytes> = batch.into_iter().collect();
    let puts: Vec<_> = last_of_each
        .into_iter()
        .map(|(key, value)| {
            let table = table.clone();
            Color::new().spawn(async move { table.put(&key, &value).await.map(drop) })
        })
        .collect();
    let mut result = Ok(());
    for put in puts {
        match put.await {
            Ok(done) => result = result.and(done),
            Err(error) => std::panic::resume_unwind(Box::new(error.to_string())),
        }
    }
    result
}
