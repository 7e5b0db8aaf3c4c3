//! Which instructions of an object lock memory, by `objdump`, and where they stand in the sources, by `addr2line`.

use super::profile::Object;
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// The instructions of an object that ran and lock memory: their addresses, and what they are.
pub(super) fn locked(path: &str, object: &Object) -> Result<HashMap<u64, String>> {
    let mut command = Command::new("objdump");
    command.args(["--disassemble", "--no-show-raw-insn", "--wide", path]).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start objdump: apt-get install binutils")?;
    let output = child.stdout.take().context("objdump has no output")?;
    let (mut locked, mut found) = (HashMap::new(), 0);
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let Some((address, text)) = std::str::from_utf8(&line).ok().and_then(instruction) else { continue };
        let Some(instruction) = object.get(&address) else { continue };
        found += instruction.count;
        if is_locked(text) {
            locked.insert(address, text.to_owned());
        }
    }
    ensure!(child.wait()?.success(), "objdump failed for {path}");
    let counted: u64 = object.values().map(|instruction| instruction.count).sum();
    // Otherwise the addresses are not those of the file.
    ensure!(found == counted, "{found} of {counted} instructions that ran are in the disassembly of {path}");
    Ok(locked)
}

/// The address and the text of a line `  ADDRESS:\tTEXT`.
fn instruction(line: &str) -> Option<(u64, &str)> {
    let (address, text) = line.split_once(":\t")?;
    Some((u64::from_str_radix(address.trim_start(), 16).ok()?, text.trim()))
}

/// Whether the processor locks the memory that an instruction changes: by the prefix, or as `xchg` always does.
fn is_locked(text: &str) -> bool {
    let mut words = text.split_whitespace();
    loop {
        match words.next() {
            Some("lock") => return true,
            Some("xchg" | "xchgb" | "xchgw" | "xchgl" | "xchgq") => break,
            Some(word) if PREFIXES.contains(&word) || word.starts_with("rex") => {}
            _ => return false,
        }
    }
    let operands: String = words.collect();
    operands.contains('(') || operands.split(',').any(|operand| !operand.starts_with('%') || operand.contains(':'))
}

const PREFIXES: [&str; 13] =
    ["data16", "addr32", "cs", "ds", "es", "fs", "gs", "ss", "rep", "repz", "repnz", "xacquire", "xrelease"];

/// Where in the sources an instruction stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) function: String,
    /// `path:line`; empty where that is not known.
    pub(super) line: String,
}

/// The places of these addresses, in their order: of the functions that the compiler put into one another, the innermost
/// that is not of the standard library.
pub(super) fn places(path: &str, addresses: &[u64]) -> Result<Vec<Option<Place>>> {
    let mut command = Command::new("addr2line");
    command.args(["--exe", path, "--functions", "--inlines", "--demangle", "--addresses"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.context("cannot start addr2line: apt-get install binutils")?;
    let mut input = child.stdin.take().context("addr2line has no input")?;
    let text: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let output = child.stdout.take().context("addr2line has no output")?;
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let places = read_places(BufReader::new(output))?;
    if !matches!(writer.join(), Ok(Ok(()))) || !child.wait()?.success() {
        bail!("addr2line failed for {path}");
    }
    ensure!(places.len() == addresses.len(), "addr2line named {} of {} places", places.len(), addresses.len());
    Ok(places)
}

fn read_places(output: impl BufRead) -> Result<Vec<Option<Place>>> {
    let (mut places, mut function) = (Vec::new(), None);
    for line in output.lines() {
        let line = line?;
        if line.starts_with("0x") && function.is_none() {
            places.push(None);
            continue;
        }
        let Some(name) = function.take() else {
            function = Some(line);
            continue;
        };
        let line = line.split(" (").next().unwrap_or_default();
        if let Some(place) = places.last_mut().filter(|place| place.is_none())
            && !is_library(line)
            && name != "??"
        {
            *place = Some(Place { function: name, line: shortened(line) });
        }
    }
    Ok(places)
}

fn is_library(line: &str) -> bool {
    ["/library/core/", "/library/alloc/", "/library/std/", "/rustc/"].iter().any(|part| line.contains(part))
}

/// The path from the workspace or from the registry on.
fn shortened(line: &str) -> String {
    let line = line.strip_prefix("./").unwrap_or(line);
    if let Some((_, rest)) = line.split_once("/registry/src/") {
        return rest.split_once('/').map_or(rest, |(_, rest)| rest).to_owned();
    }
    line.find("/crates/").map_or(line, |at| &line[at + 1..]).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_instructions_are_told_from_others() {
        for text in [
            "lock xadd %rax,(%rdi)",
            "lock cmpxchg16b (%rdi)",
            "xacquire lock incl 0x4(%rax)",
            "xchg   %rax,(%rdi)",
            "xchg   %al,0x10(%r14)",
            "xchg   %rax,%fs:0x10",
            "data16 xchg %rax,0x1000",
        ] {
            assert!(is_locked(text), "{text}");
        }
        for text in
            ["xchg   %ax,%ax", "data16 xchg %ax,%ax", "xchg   %rdi,%rsi", "cmpxchg %rcx,(%rdi)", "mov (%rax),%rax", ""]
        {
            assert!(!is_locked(text), "{text}");
        }
    }

    #[test]
    fn addresses_are_told_from_heads() {
        assert_eq!(instruction("  4010a0:\tlock xadd %rax,(%rdi)"), Some((0x4010a0, "lock xadd %rax,(%rdi)")));
        assert_eq!(instruction("00000000004010a0 <main>:"), None);
        assert_eq!(instruction("Disassembly of section .text:"), None);
    }

    #[test]
    fn the_innermost_function_of_a_program_is_named() {
        let text = "\
0x0000000000000010
core::sync::atomic::atomic_add
/rustc/abc/library/core/src/sync/atomic.rs:3
app::queue::push
/home/a/app/crates/dapple-sched/src/queue.rs:7 (discriminator 2)
app::main
/home/a/app/crates/app/src/main.rs:1
0x0000000000000020
??
??:0
";
        let places = read_places(text.as_bytes()).expect("it is read");
        let line = "crates/dapple-sched/src/queue.rs:7".to_owned();
        assert_eq!(places, [Some(Place { function: "app::queue::push".to_owned(), line }), None]);
        assert_eq!(shortened("/home/a/.cargo/registry/src/index-1/bytes-1.0/src/lib.rs:5"), "bytes-1.0/src/lib.rs:5");
    }
}
