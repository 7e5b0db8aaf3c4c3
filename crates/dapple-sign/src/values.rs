//! Parsers of option values, with errors that say what to write.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Parses numbers in `range`, for clap.
pub(crate) fn number<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| {
        let number =
            text.parse::<u64>().ok().filter(|number| range.contains(number)).and_then(|number| number.try_into().ok());
        number
            .ok_or_else(|| format!("{text} is out of range; write a number from {} to {}", range.start(), range.end()))
    }
}

/// Parses seconds, with an optional decimal part.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|seconds| !seconds.is_zero() && *seconds <= Duration::from_secs(86_400))
        .ok_or_else(|| "write seconds, above 0 and up to 86400, for example 10 or 0.5".to_owned())
}

/// Splits `HOST:PORT`; an IPv6 address as the host is in brackets.
pub(crate) fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let advice = "write HOST:PORT, for example 127.0.0.1:8080, 0.0.0.0:80 or [::1]:8080";
    let (host, port) = text.rsplit_once(':').ok_or(advice)?;
    let port = port.parse().map_err(|_| format!("{port:?} is not a port (0 to 65535); {advice}"))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // Brackets are for IPv6 addresses, and no name contains them.
    let is_host = match bare {
        Some(address) => address.contains(':') && !address.contains(['[', ']']),
        None => !host.is_empty() && !host.contains([':', '[', ']']),
    };
    if !is_host {
        return Err(advice.to_owned());
    }
    Ok((bare.unwrap_or(host).to_owned(), port))
}
