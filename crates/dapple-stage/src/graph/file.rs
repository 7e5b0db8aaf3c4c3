//! Writing a graph to a file, once or repeatedly.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dapple_io::{fs, time::sleep};
use dapple_sched::{AbortHandle, Handle};

use super::Graph;

impl Graph {
    /// Writes the graph to a file: as text if the name ends in `.txt`, otherwise as a drawing. A
    /// reader of the file sees the old version or the new one, never a part.
    ///
    /// # Errors
    /// The file system's error, with the name of the file.
    ///
    /// Cancel safe: if dropped, the file is unchanged; a file of the same name plus `.new` may
    /// remain.
    pub async fn write(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let is_text = path.extension().is_some_and(|extension| extension == "txt");
        let content = if is_text { self.to_string() } else { self.to_svg() };
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let result = match fs::write(&new, content).await {
            Ok(()) => fs::rename(&new, path).await,
            Err(error) => Err(error),
        };
        result.map_err(|error| {
            let path = path.display();
            io::Error::new(error.kind(), format!("the graph of stages cannot be written to {path}: {error}"))
        })
    }

    /// Writes the graph to a file now and every `period`, until the returned value is dropped.
    /// Errors go to the log.
    ///
    /// # Panics
    /// If no runtime is current.
    #[must_use = "the file is updated only while this is kept"]
    pub fn keep(&self, path: impl Into<PathBuf>, period: Duration) -> Kept {
        let (graph, path) = (self.clone(), path.into());
        let task = Handle::current().spawn(async move {
            let mut last = None;
            loop {
                if let Some(problem) = new_problem(&mut last, &graph.write(&path).await) {
                    tracing::error!("{problem}");
                }
                sleep(period).await;
            }
        });
        Kept { task: task.abort_handle() }
    }
}

/// The error's text, unless it equals the last one: if a disk is full for a day, one report is
/// enough.
fn new_problem<'l>(last: &'l mut Option<String>, result: &io::Result<()>) -> Option<&'l str> {
    let problem = result.as_ref().err().map(io::Error::to_string);
    let is_new = problem.is_some() && problem != *last;
    *last = problem;
    last.as_deref().filter(|_| is_new)
}

/// Keeps a file up to date with a graph while it lives.
pub struct Kept {
    task: AbortHandle,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

/// Returns the file named by `--graph FILE` or `--graph=FILE`, for programs without a command-line
/// parser.
///
/// # Errors
/// `--graph` is the last argument, so no file is named.
///
/// ```no_run
/// use std::time::Duration;
/// use dapple_stage::graph::{Graph, from_arguments};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let graph = Graph::new();
/// let _kept = from_arguments(std::env::args_os())?.map(|file| graph.keep(file, Duration::from_secs(1)));
/// # Ok(())
/// # }
/// ```
pub fn from_arguments(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<PathBuf>, String> {
    let mut arguments = arguments.into_iter().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            break;
        }
        if argument == "--graph" {
            let file = arguments.next().filter(|file| !file.is_empty());
            return file.map(|file| Some(file.into())).ok_or_else(|| "--graph needs the name of a file".to_owned());
        }
        if let Some(file) = argument.to_str().and_then(|argument| argument.strip_prefix("--graph=")) {
            return Ok(Some(file.into()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_reported_once_and_again_when_it_returns() {
        let (full, gone) = (|| Err(io::Error::other("full")), || Err(io::Error::other("gone")));
        let mut last = None;
        let results = [Ok(()), full(), full(), gone(), gone(), Ok(()), gone()];
        let told: Vec<_> = results.iter().map(|result| new_problem(&mut last, result).map(str::to_owned)).collect();
        let [full, gone] = ["full", "gone"].map(|text| Some(text.to_owned()));
        assert_eq!(told, [None, full, None, gone.clone(), None, None, gone]);
    }
}
