//! Times in the formats of logs, all in UTC.

use std::cell::RefCell;
use std::io::Write;
use std::time::{Duration, SystemTime};

/// A date and a time of day.
struct Civil {
    year: u64,
    month: usize,
    day: u64,
    second_of_day: u64,
}

/// The time since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// `21/Nov/2026:22:57:47 +0000`, the format of web servers.
pub(super) fn common(at: Duration, out: &mut Vec<u8>) {
    LAST.with_borrow_mut(|(second, text)| {
        if *second != at.as_secs() || text.is_empty() {
            let Civil { year, month, day, second_of_day } = civil(at.as_secs());
            let (hour, minute, rest) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
            text.clear();
            // Writing to memory does not fail.
            let _ = write!(text, "{day:02}/{}/{year}:{hour:02}:{minute:02}:{rest:02} +0000", MONTHS[month - 1]);
            *second = at.as_secs();
        }
        out.extend_from_slice(text);
    });
}

/// `2026-11-21T22:57:47.123456Z` (RFC 3339).
pub(crate) fn rfc_3339(at: Duration, out: &mut Vec<u8>) {
    let Civil { year, month, day, second_of_day } = civil(at.as_secs());
    let (hour, minute, rest, us) =
        (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60, at.subsec_micros());
    let _ = write!(out, "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{rest:02}.{us:06}Z");
}

/// The date in the Gregorian calendar. Years begin in March here, so that the leap day is the last
/// day.
fn civil(unix_s: u64) -> Civil {
    let days = unix_s / DAY_S + DAYS_TO_1970;
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    Civil { year, month: month as usize, day, second_of_day: unix_s % DAY_S }
}

thread_local! {
    /// The last second written, and its text.
    static LAST: RefCell<(u64, Vec<u8>)> = const { RefCell::new((0, Vec::new())) };
}

const DAY_S: u64 = 86_400;
/// 400 years.
const ERA_DAYS: u64 = 146_097;
/// Days from the first of March of the year 0 to 1970.
const DAYS_TO_1970: u64 = 719_468;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{civil, common, rfc_3339};

    #[test]
    fn times_have_the_expected_formats() {
        let at = Duration::new(1_795_301_867, 1_234_567);
        let (mut one, mut other) = (Vec::new(), Vec::new());
        common(at, &mut one);
        rfc_3339(at, &mut other);
        assert_eq!(String::from_utf8(one).unwrap(), "21/Nov/2026:22:57:47 +0000");
        assert_eq!(String::from_utf8(other).unwrap(), "2026-11-21T22:57:47.001234Z");
    }

    /// Compared with another crate's calendar, on days close together over several leap years.
    #[test]
    fn the_calendar_is_right() {
        for day in (0..60_000).step_by(7) {
            let unix_s = day * 86_400 + 3_600;
            let known = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(unix_s));
            let found = civil(unix_s);
            let month = super::MONTHS[found.month - 1];
            let date = format!("{:02} {month} {} 01:00:00", found.day, found.year);
            assert!(known.contains(&date), "{known} {date}");
        }
    }
}
