//! Common texts of all experiments: names of values, bad durations, passed and failed runs.

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;

/// A value's name, as on the command line.
pub(crate) fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Refuses a duration that makes no sense.
pub(crate) fn check_secs(secs: f64, secs_max: f64) -> Result<()> {
    ensure!(secs > 0.0 && secs <= secs_max, "--secs {secs} makes no sense: pass a number above 0 and up to {secs_max}");
    Ok(())
}

/// The table cell that says whether all runs of its row passed their check.
pub(crate) fn checked(runs: impl Iterator<Item = bool>) -> String {
    match runs.filter(|passed| !passed).count() {
        0 => "yes".to_owned(),
        failed => format!("{failed} FAILED"),
    }
}

/// An error that names the runs with a failed check, each with the text of `failure`.
pub(crate) fn verdict<T>(all: &[T], failure: impl Fn(&T) -> Option<String>) -> Result<()> {
    let failed: Vec<String> = all.iter().filter_map(failure).collect();
    if failed.is_empty() {
        return Ok(());
    }
    bail!("{} of {} runs failed their check:\n  {}", failed.len(), all.len(), failed.join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_runs_are_counted_and_named() {
        assert_eq!(checked([true, true].into_iter()), "yes");
        assert_eq!(checked([true, false].into_iter()), "1 FAILED");
        let failure = |run: &u32| (*run > 1).then(|| format!("run {run}: wrong"));
        assert!(verdict(&[0, 1], failure).is_ok());
        let error = verdict(&[1, 2], failure).map_err(|error| error.to_string());
        assert_eq!(error, Err("1 of 2 runs failed their check:\n  run 2: wrong".to_owned()));
    }
}
