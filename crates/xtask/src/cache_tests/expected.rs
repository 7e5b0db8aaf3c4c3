//! Tests that the suite requires of a cache and `dapple proxy` fails.

/// Why this test is expected to fail; `None` if it is not.
pub(super) fn reason(id: &str) -> Option<&'static str> {
    EXPECTED.iter().find(|(_, ids)| ids.contains(&id)).map(|(why, _)| *why)
}

/// A reason and its tests; the same for both proxies.
type Group = (&'static str, &'static [&'static str]);

const EXPECTED: &[Group] = &[
    (
        "RFC 9111, section 5.1, is later than this version of the suite: an `Age` that is no number is ignored, and of several the \
         first one counts. Later versions of the suite test for that.",
        &[
            "age-parse-nonnumeric",
            "age-parse-negative",
            "age-parse-float",
            "age-parse-prefix-twoline",
            "age-parse-dup-0",
            "age-parse-dup-0-twoline",
            "age-parse-dup-old",
            "age-parse-parameter",
            "age-parse-numeric-parameter",
        ],
    ),
    (
        "Where the server ends the connection, only what `stale-if-error` allows is sent stale; these are about caches that do more.",
        &[
            "stale-close-must-revalidate",
            "stale-close-proxy-revalidate",
            "stale-close-no-cache",
            "stale-close-s-maxage=2",
        ],
    ),
    (
        "Responses of these statuses are not kept, so that none becomes stale.",
        &[
            "status-299-stale",
            "status-400-stale",
            "status-499-stale",
            "status-500-stale",
            "status-502-stale",
            "status-503-stale",
            "status-504-stale",
            "status-599-stale",
            "status-599-must-understand",
        ],
    ),
    (
        "A response with `Set-Cookie` is kept only if it says that it is for all (RFC 9111, section 7.3).",
        &["headers-store-Set-Cookie", "304-etag-update-response-Set-Cookie"],
    ),
    (
        "A transfer coding that is none is refused with 502: programs may differ about where such a response ends.",
        &["headers-store-Transfer-Encoding"],
    ),
    (
        "A 304 with another entity tag is about other bytes than those that are kept, so the server is asked once more; the suite \
         does not expect that.",
        &["304-etag-update-response-ETag"],
    ),
    (
        "RFC 9111, section 3.2, is later than this version of the suite: a 304 changes `Content-MD5`, and need not change \
         `Content-Type`. Later versions of the suite test for neither.",
        &["304-etag-update-response-Content-MD5", "304-etag-update-response-Content-Type"],
    ),
];

#[cfg(test)]
mod tests {
    use super::{EXPECTED, reason};

    #[test]
    fn each_is_listed_once() {
        let mut ids: Vec<&str> = EXPECTED.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
        assert!(reason("headers-store-Set-Cookie").is_some_and(|why| why.contains("7.3")));
        assert_eq!(reason("freshness-max-age"), None);
    }
}
