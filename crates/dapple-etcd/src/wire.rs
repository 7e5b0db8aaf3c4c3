//! Bytes and numbers as the JSON gateway writes them, and the messages that carry them.

use base64::Engine as _;
use base64::display::Base64Display;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// Bytes, which are a text of Base64 in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Base64(pub(crate) Bytes);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(&self.0, &BASE64_STANDARD))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Base64, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Base64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text of Base64")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Base64, E> {
                BASE64_STANDARD.decode(text).map(|bytes| Base64(bytes.into())).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// A number of 64 bits, which is a text in JSON. The gateway reads both forms.
pub(crate) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    struct Number;
    impl Visitor<'_> for Number {
        type Value = i64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number, or a text of one")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<i64, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<i64, E> {
            Ok(number)
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<i64, E> {
            i64::try_from(number).map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Number)
}

pub(crate) fn is_zero(number: &i64) -> bool {
    *number == 0
}

pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Header {
    #[serde(deserialize_with = "number")]
    pub(crate) revision: i64,
}

/// A key with its value.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pair {
    pub(crate) key: Base64,
    pub(crate) value: Base64,
    #[serde(deserialize_with = "number")]
    pub(crate) create_revision: i64,
    #[serde(deserialize_with = "number")]
    pub(crate) mod_revision: i64,
    #[serde(deserialize_with = "number")]
    pub(crate) version: i64,
    #[serde(deserialize_with = "number")]
    pub(crate) lease: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RangeReply {
    pub(crate) header: Header,
    pub(crate) kvs: Vec<Pair>,
    pub(crate) more: bool,
    #[serde(deserialize_with = "number")]
    pub(crate) count: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PutReply {
    pub(crate) header: Header,
    pub(crate) prev_kv: Option<Pair>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeleteReply {
    pub(crate) header: Header,
    #[serde(deserialize_with = "number")]
    pub(crate) deleted: i64,
    pub(crate) prev_kvs: Vec<Pair>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TxnReply {
    pub(crate) header: Header,
    pub(crate) succeeded: bool,
    pub(crate) responses: Vec<OpReply>,
}

/// The reply to one operation of a transaction: one of the three.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OpReply {
    pub(crate) response_range: Option<RangeReply>,
    pub(crate) response_put: Option<PutReply>,
    pub(crate) response_delete_range: Option<DeleteReply>,
}

/// The reply to granting, renewing, and asking about a lease.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeaseReply {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub(crate) id: i64,
    /// Seconds; 0 or less: there is no such lease.
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub(crate) ttl: i64,
}

/// One message of a stream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Streamed<T> {
    pub(crate) result: Option<T>,
    pub(crate) error: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WatchReply {
    pub(crate) header: Header,
    pub(crate) created: bool,
    pub(crate) canceled: bool,
    #[serde(deserialize_with = "number")]
    pub(crate) compact_revision: i64,
    pub(crate) cancel_reason: String,
    /// The next message has more events of the same revision.
    pub(crate) fragment: bool,
    pub(crate) events: Vec<WireEvent>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireEvent {
    /// `DELETE`; left out for a put.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) kv: Pair,
    pub(crate) prev_kv: Option<Pair>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Token {
    pub(crate) token: String,
}

#[cfg(test)]
mod tests {
    use super::{Base64, RangeReply, Streamed, WatchReply};

    /// As etcd 3.4.23 has answered; 3.7 writes the same.
    #[test]
    fn replies_of_etcd_are_read() {
        let reply = r#"{"header":{"cluster_id":"14841639068965178418","revision":"7","raft_term":"2"},
            "kvs":[{"key":"L3gvZWNoby9hOjE=","create_revision":"2","mod_revision":"3","version":"2","value":"YToy"}],"count":"1"}"#;
        let reply: RangeReply = serde_json::from_str(reply).unwrap();
        assert_eq!((reply.header.revision, reply.count, reply.more), (7, 1, false));
        assert_eq!((&reply.kvs[0].key.0[..], &reply.kvs[0].value.0[..]), (&b"/x/echo/a:1"[..], &b"a:2"[..]));
        assert_eq!((reply.kvs[0].create_revision, reply.kvs[0].mod_revision, reply.kvs[0].version), (2, 3, 2));

        let line = r#"{"result":{"header":{"revision":"9"},"events":[{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"9"}},
            {"kv":{"key":"Yg==","mod_revision":9}}]}}"#;
        let watched = serde_json::from_str::<Streamed<WatchReply>>(line).unwrap().result.unwrap();
        let kinds: Vec<&str> = watched.events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!((kinds, watched.events[1].kv.mod_revision), (vec!["DELETE", ""], 9));
        let canceled = r#"{"result":{"header":{"raft_term":"2"},"canceled":true,"compact_revision":"3"}}"#;
        let canceled = serde_json::from_str::<Streamed<WatchReply>>(canceled).unwrap().result.unwrap();
        assert_eq!((canceled.canceled, canceled.compact_revision), (true, 3));
    }

    #[test]
    fn bytes_and_numbers_that_are_none_are_errors() {
        for wrong in
            [r#"{"kvs":[{"key":"*"}]}"#, r#"{"count":"x"}"#, r#"{"count":18446744073709551615}"#, r#"{"kvs":3}"#]
        {
            assert!(serde_json::from_str::<RangeReply>(wrong).is_err(), "{wrong}");
        }
        assert_eq!(serde_json::to_string(&Base64(b"a:2"[..].into())).unwrap(), r#""YToy""#);
    }
}
