//! The check that every task is accounted for: the clients' results against the logs.

use super::client::Report;
use anyhow::{Result, ensure};

/// The results of all clients of a trial.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct Account {
    pub(super) signed: u64,
    /// Answered with an error; the task may be in the log or not.
    pub(super) failed: u64,
    /// Not answered; the task may be in the log or not.
    pub(super) lost: u64,
}

impl Account {
    /// Adds the result of one client.
    pub(super) fn add(&mut self, report: &Report) {
        self.signed += report.signed;
        self.failed += report.failed;
        self.lost += report.lost;
    }

    /// Checks that no accepted task is lost without its client knowing: each signed task is in a
    /// log, and each task in a log was signed, or its client knows that the outcome is unknown.
    pub(super) fn check(&self, records: u64) -> Result<()> {
        let Account { signed, failed, lost } = *self;
        ensure!(signed <= records, "{signed} tasks were signed, and the logs have {records} records");
        ensure!(
            records <= signed + failed + lost,
            "the logs have {records} records, and clients know of {signed} that were signed, {failed} that failed and {lost} that \
             were not answered"
        );
        Ok(())
    }

    /// As `check`, for servers that were not killed: each task was answered.
    pub(super) fn check_all_answered(&self, records: u64) -> Result<()> {
        self.check(records)?;
        let Account { failed, lost, .. } = *self;
        ensure!(failed + lost == 0, "{failed} tasks failed and {lost} were not answered, though no server was killed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logs_hold_what_clients_know_of() {
        let account = Account { signed: 100, failed: 1, lost: 5 };
        for records in [100, 103, 106] {
            assert!(account.check(records).is_ok(), "{records}");
        }
        let error = |records| account.check(records).map_err(|error| error.to_string());
        assert!(error(99).is_err_and(|error| error.contains("the logs have 99 records")));
        assert!(error(107).is_err_and(|error| error.contains("clients know of 100 that were signed")));
    }

    #[test]
    fn without_a_kill_all_are_answered() {
        assert!(Account { signed: 9, failed: 0, lost: 0 }.check_all_answered(9).is_ok());
        assert!(Account { signed: 9, failed: 0, lost: 0 }.check_all_answered(10).is_err());
        assert!(Account { signed: 9, failed: 0, lost: 1 }.check_all_answered(10).is_err());
        assert!(Account { signed: 9, failed: 1, lost: 0 }.check_all_answered(9).is_err());
    }

    #[test]
    fn several_clients_count_together() {
        let report: Report = serde_json::from_str(super::super::client::tests::LINE).expect("it is one");
        let mut account = Account::default();
        account.add(&report);
        account.add(&report);
        assert_eq!(account, Account { signed: 200, failed: 4, lost: 8 });
    }
}
