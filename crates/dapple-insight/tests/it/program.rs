//! Writes the recording of a program that never ran, in the file's own format: times are exact on every machine.

use std::io::Write;

use dapple_insight::Recording;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

/// A recording that is being written.
pub(crate) struct Program {
    workers: usize,
    lines: Vec<&'static str>,
    rows: Vec<(u64, String)>,
    requests: Vec<serde_json::Value>,
    last_id: u64,
    end_ns: u64,
}

/// A callback of the program.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) cause: u64,
    pub(crate) color: u64,
    pub(crate) worker: i32,
    pub(crate) file: &'static str,
    pub(crate) accepted: u64,
    pub(crate) started: u64,
    pub(crate) ended: u64,
}

impl Program {
    pub(crate) fn new(workers: usize) -> Program {
        Program { workers, lines: Vec::new(), rows: Vec::new(), requests: Vec::new(), last_id: 0, end_ns: 0 }
    }

    /// Returns the number of the callback.
    pub(crate) fn call(&mut self, call: Call) -> u64 {
        self.add(call, 0)
    }

    /// A callback that holds several colors, of which this is one.
    pub(crate) fn call_of_several(&mut self, call: Call) -> u64 {
        self.add(call, 4)
    }

    fn add(&mut self, call: Call, accepted: u8) -> u64 {
        self.last_id += 1;
        let (id, line) = (self.last_id, self.line(call.file));
        for (kind, at) in [(accepted, call.accepted), (1, call.started), (2, call.ended)] {
            self.row(at, (kind, id, call.cause, call.color, call.worker, line, at, at));
        }
        id
    }

    /// A request that began in a callback, and its times.
    pub(crate) fn request(&mut self, callback: u64, began_ns: u64, ended_ns: u64) {
        let (trace, span) = (format!("{:032x}", self.requests.len() + 1), self.requests.len() + 1);
        self.requests.push(json!({
            "trace": trace, "span": span, "parent": 0, "callback": callback, "began_ns": began_ns, "ended_ns": ended_ns
        }));
    }

    /// A closure in line with a state.
    pub(crate) fn in_line(&mut self, cause: u64, color: u64, worker: i32, file: &'static str, from: u64, to: u64) {
        self.hold(3, cause, color, worker, file, (from, to));
    }

    /// A closure in line that reads a state.
    pub(crate) fn read(&mut self, cause: u64, color: u64, worker: i32, file: &'static str, from: u64, to: u64) {
        self.hold(5, cause, color, worker, file, (from, to));
    }

    fn hold(&mut self, kind: u8, cause: u64, color: u64, worker: i32, file: &'static str, (from, to): (u64, u64)) {
        self.last_id += 1;
        let (id, line) = (self.last_id, self.line(file));
        self.row(to, (kind, id, cause, color, worker, line, from, to));
    }

    pub(crate) fn file(mut self) -> Vec<u8> {
        self.rows.sort_by_key(|(at, _)| *at);
        let lines: Vec<_> = self.lines.iter().map(|file| json!({ "file": file, "line": 1 })).collect();
        let header = json!({
            "dapple_recording": 2, "workers": self.workers, "elapsed_ns": self.end_ns, "lost": 0, "lines": lines,
            "requests": self.requests
        });
        let mut text = format!("{header}\n");
        self.rows.iter().for_each(|(_, row)| text.push_str(&format!("{row}\n")));
        text.push_str(&format!("{}\n", json!({ "events": self.rows.len() })));
        gzip(&text)
    }

    pub(crate) fn recording(self) -> Recording {
        Recording::load(&self.file()[..]).expect("it is whole")
    }

    fn line(&mut self, file: &'static str) -> u32 {
        let found = self.lines.iter().position(|line| *line == file);
        found.unwrap_or_else(|| {
            self.lines.push(file);
            self.lines.len() - 1
        }) as u32
    }

    fn row(&mut self, at: u64, row: (u8, u64, u64, u64, i32, u32, u64, u64)) {
        self.end_ns = self.end_ns.max(at);
        self.rows.push((at, serde_json::to_string(&row).expect("numbers")));
    }
}

pub(crate) fn gzip(text: &str) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(text.as_bytes()).expect("to memory");
    out.finish().expect("to memory")
}

pub(crate) const US: u64 = 1_000;
