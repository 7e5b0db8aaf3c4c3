//! Times of expiry in commands.

use std::time::{Duration, SystemTime};

use super::reply::{Reply, integer};

/// The expiry time that an option such as `EX 10` asks for.
pub(super) fn expiry(word: &[u8], time: &[u8], command: &str) -> Result<SystemTime, Reply> {
    if integer(time)? <= 0 {
        return Err(invalid_expiry(command));
    }
    match word {
        b"EX" => after(time, 1000, command),
        b"PX" => after(time, 1, command),
        b"EXAT" => at(time, 1000, command),
        b"PXAT" => at(time, 1, command),
        _ => Err(Reply::syntax()),
    }
}

/// The time this many units from now, or before now.
pub(super) fn after(word: &[u8], unit_ms: i64, command: &str) -> Result<SystemTime, Reply> {
    let ms = integer(word)?.checked_mul(unit_ms).ok_or_else(|| invalid_expiry(command))?;
    let length = Duration::from_millis(ms.unsigned_abs());
    let now = SystemTime::now();
    let now_ms = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    if ms.checked_add(now_ms).is_none() {
        return Err(invalid_expiry(command));
    }
    let time = if ms >= 0 { now.checked_add(length) } else { now.checked_sub(length) };
    time.ok_or_else(|| invalid_expiry(command))
}

/// The time this many units after 1970.
pub(super) fn at(word: &[u8], unit_ms: i64, command: &str) -> Result<SystemTime, Reply> {
    let ms = integer(word)?.checked_mul(unit_ms).ok_or_else(|| invalid_expiry(command))?;
    // A time before 1970 is over, as 1970 is.
    let since = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    SystemTime::UNIX_EPOCH.checked_add(since).ok_or_else(|| invalid_expiry(command))
}

pub(super) fn invalid_expiry(command: &str) -> Reply {
    Reply::Error(format!("ERR invalid expire time in '{command}' command"))
}
