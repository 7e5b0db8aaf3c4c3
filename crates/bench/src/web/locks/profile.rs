//! A profile of callgrind: how often each instruction of each object ran.

use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::io::BufRead;

/// How often instructions ran.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Profile {
    /// By the object's file name.
    pub(super) objects: HashMap<String, Object>,
    /// All instructions.
    pub(super) total: u64,
}

/// The instructions of one object that ran, by their addresses in its file.
pub(super) type Object = HashMap<u64, Instruction>;

/// One instruction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Instruction {
    pub(super) count: u64,
    /// The symbol that it stands in.
    pub(super) symbol: String,
}

impl Profile {
    /// Reads what `--dump-instr=yes --compress-strings=no --compress-pos=no` writes.
    ///
    /// The counts must add up to the total that callgrind itself states.
    pub(super) fn read(lines: impl BufRead) -> Result<Profile> {
        let mut profile = Profile::default();
        let (mut stated, mut object, mut symbol) = (None, String::new(), String::new());
        let mut is_call = false;
        for line in lines.lines() {
            let line = line.context("cannot read the profile")?;
            if line.starts_with("0x") {
                // The line after `calls=` has the cost of the callee, which is counted there.
                if !std::mem::take(&mut is_call) {
                    let (address, count) = cost(&line).with_context(|| format!("no cost: {line}"))?;
                    let instructions = profile.objects.entry(object.clone()).or_default();
                    let instruction =
                        instructions.entry(address).or_insert_with(|| Instruction { count: 0, symbol: symbol.clone() });
                    instruction.count += count;
                    profile.total += count;
                }
                continue;
            }
            match line.split_once(['=', ':']) {
                Some(("ob", name)) => object = name.to_owned(),
                Some(("fn", name)) => symbol = name.to_owned(),
                Some(("calls", _)) => is_call = true,
                Some(("positions", what)) => ensure!(what.trim() == "instr line", "no addresses: positions {what}"),
                Some(("totals", total)) => stated = total.trim().parse::<u64>().ok(),
                _ => {}
            }
        }
        match stated {
            Some(stated) if stated == profile.total => Ok(profile),
            stated => bail!("the counts add up to {}, and callgrind states {stated:?}", profile.total),
        }
    }
}

/// The address and the count of a line `0xADDRESS LINE COUNT`.
fn cost(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split(' ');
    let address = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
    let count = fields.nth(1)?.parse().ok()?;
    Some((address, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# callgrind format
positions: instr line
events: Ir
summary: 13

ob=/usr/bin/a
fl=???
fn=main
0x10 0 1
0x12 0 2
cob=/lib/b.so
cfn=work::{{closure}}
calls=2 0x40
0x15 0 9

ob=/lib/b.so
fn=work::{{closure}}
0x10 7 4
fe=other.rs
0x14 8 5

fn=again
0x14 8 1

totals: 13
";

    #[test]
    fn instructions_are_counted_for_each_object() {
        let profile = Profile::read(TEXT.as_bytes()).expect("it is read");
        assert_eq!(profile.total, 13);
        let of = |object: &str, address: u64| profile.objects[object].get(&address).cloned().unwrap_or_default();
        assert_eq!((of("/usr/bin/a", 0x12).count, of("/lib/b.so", 0x10).count), (2, 4));
        assert_eq!(of("/usr/bin/a", 0x15).count, 0, "the cost of a call is that of the callee");
        let shared = of("/lib/b.so", 0x14);
        assert_eq!((shared.count, shared.symbol.as_str()), (6, "work::{{closure}}"));
    }

    #[test]
    fn counts_that_do_not_add_up_are_an_error() {
        let error = Profile::read(TEXT.replace("totals: 13", "totals: 14").as_bytes()).expect_err("one is missing");
        assert!(error.to_string().contains("add up to 13"), "{error}");
        assert!(Profile::read(TEXT.replace("instr line", "line").as_bytes()).is_err());
        assert!(Profile::read(&b""[..]).is_err());
    }
}
